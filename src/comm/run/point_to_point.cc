#include "comm/run/point_to_point.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/try.h"
#include "comm/run/calls.h"
#include "comm/run/message_group.h"
#include "engine/host/memory.h"
#include "plan/builder.h"

namespace unisono::comm {
// The connections as one group sees them: open to it when its tickets are served.
class PointToPoint::Lane : public engine::Resources {
 public:
  explicit Lane(PointToPoint& owner) : owner_(owner) {}
  ~Lane() override {
    const std::lock_guard lock(owner_.mutex_);
    for (const auto& [direction, first, messages] : tickets_)
      if (direction->serving.load() == first) direction->serving.fetch_add(messages);
  }

  // Tickets for so many messages; returns the first.
  std::uint64_t draw(const Way& way, std::uint32_t messages) {
    const std::lock_guard lock(owner_.mutex_);
    Direction& direction = owner_.directions_[way];
    const std::uint64_t first = direction.next_ticket.fetch_add(messages);
    tickets_.push_back({&direction, first, messages});
    return first;
  }
  // Draws one only if no other group holds or awaits it.
  bool draw_if_free(const Way& way) {
    const std::lock_guard lock(owner_.mutex_);
    Direction& direction = owner_.directions_[way];
    std::uint64_t first = 0;
    if (!direction.draw_if_free(first)) return false;
    tickets_.push_back({&direction, first, 1});
    return true;
  }
  std::uint64_t first_ticket() const { return tickets_.front().first; }
  void set_tags(std::vector<int> tags) { tags_ = std::move(tags); }

  Result<transport::SendFifo*> send_fifo(int peer, int channel, Protocol protocol) override {
    const int tag = tags_[static_cast<std::size_t>(channel)];
    if (!served({peer, true, tag})) return nullptr;
    return owner_.connections_.send_fifo(peer, point_to_point_channel + tag, protocol);
  }
  Result<transport::RecvFifo*> recv_fifo(int peer, int channel, Protocol protocol) override {
    const int tag = tags_[static_cast<std::size_t>(channel)];
    if (!served({peer, false, tag})) return nullptr;
    return owner_.connections_.recv_fifo(peer, point_to_point_channel + tag, protocol);
  }
  Status progress() override { return owner_.connections_.progress(); }
  Result<void*> scratch(std::size_t) override {
    return bug("a group of messages asked for scratch memory");
  }

 private:
  bool served(const Way& way) {
    const std::lock_guard lock(owner_.mutex_);
    const Direction& direction = owner_.directions_[way];
    for (const auto& [drawn, first, messages] : tickets_)
      if (drawn == &direction) return direction.serving.load() == first;
    return false;
  }

  struct Tickets {
    Direction* direction;
    std::uint64_t first;
    std::uint32_t messages;
  };
  PointToPoint& owner_;
  std::vector<Tickets> tickets_;
  std::vector<int> tags_;
};

// The connections as a message sees them whose ticket is served.
class PointToPoint::OpenLane : public engine::Resources {
 public:
  explicit OpenLane(Connections& connections) : connections_(connections) {}

  Result<transport::SendFifo*> send_fifo(int peer, int, Protocol protocol) override {
    return connections_.send_fifo(peer, point_to_point_channel, protocol);
  }
  Result<transport::RecvFifo*> recv_fifo(int peer, int, Protocol protocol) override {
    return connections_.recv_fifo(peer, point_to_point_channel, protocol);
  }
  Status progress() override { return connections_.progress(); }
  Result<void*> scratch(std::size_t) override { return bug("a message asked for scratch memory"); }

 private:
  Connections& connections_;
};

// A receive from the rank that sends first. Until one has sent, it only polls; then it is an
// ordinary receive from that rank.
class PointToPoint::AnySource : public engine::Execution {
 public:
  AnySource(PointToPoint& owner, const Message& message, Task& task)
      : owner_(owner), message_(message), task_(task) {}
  ~AnySource() override { chosen_.owned.reset(); }  // before its lane

  Status start(const engine::Arguments&) override { return {}; }
  Result<bool> poll() override {
    if (chosen_.execution == nullptr) UNISONO_TRY(choose());
    if (chosen_.execution == nullptr) return false;
    return chosen_.execution->poll();
  }
  bool progressed() const override { return chosen_.execution && chosen_.execution->progressed(); }
  engine::Waiting waiting() const override {
    if (chosen_.execution) return chosen_.execution->waiting();
    engine::Waiting out;
    out.kind = engine::Waiting::Kind::message;
    return out;
  }
  std::vector<engine::Waiting> waits() const override {
    if (chosen_.execution) return chosen_.execution->waits();
    return {waiting()};
  }
  std::size_t memory_bytes() const override { return sizeof *this; }

 private:
  Status choose() {
    const std::uint64_t bytes = bytes_of(message_);
    const auto first_piece = std::min(bytes, owner_.piece_bytes(bytes));
    for (int peer = 0; peer < owner_.ranks_; ++peer) {
      if (peer == owner_.rank_) continue;
      const Way way{peer, false, message_.tag};
      if (!owner_.is_free(way)) continue;
      UNISONO_ASSIGN(
          transport::RecvFifo * fifo,
          owner_.connections_.recv_fifo(peer, point_to_point_channel + way.tag, Protocol::simple));
      if (fifo == nullptr) continue;
      fifo->set_call({.what = owner_.call_of(message_)});
      UNISONO_ASSIGN(const bool arrived, fifo->arrived(first_piece));
      if (!arrived) continue;
      // A receive that names this peer may have come meanwhile: the message is its.
      auto lane = std::make_unique<Lane>(owner_);
      if (!lane->draw_if_free(way)) continue;
      lane->set_tags({message_.tag});
      message_.peer = task_.source = peer;
      UNISONO_TRY(owner_.prepare(std::span(&message_, 1), std::move(lane), chosen_));
      task_.parts.front().peer = peer;
      task_.parts.front().sequence = chosen_.parts.front().sequence;
      return chosen_.execution->start(chosen_.arguments);
    }
    return owner_.connections_.progress();
  }

  PointToPoint& owner_;
  Message message_;
  Task& task_;
  Task chosen_;
};

PointToPoint::PointToPoint(Connections& connections, int rank, int ranks,
                           const transport::FifoOptions& fifo_options)
    : connections_(connections),
      rank_(rank),
      ranks_(ranks),
      fifo_options_(fifo_options),
      open_lane_(std::make_unique<OpenLane>(connections)) {}

PointToPoint::~PointToPoint() = default;

// One block of the message's bytes; the engine's tiles are the pieces that a group would send.
Result<PointToPoint::PreparedMessage*> PointToPoint::prepared(const Message& message) {
  const bool sends = message.is_send;
  prepared_.resize(static_cast<std::size_t>(ranks_) * 2);
  auto& known = prepared_[static_cast<std::size_t>(sends ? ranks_ : 0) +
                          static_cast<std::size_t>(message.peer)];
  if (!known) {
    plan::Header header;
    header.name = "message";
    header.collective = Collective::point_to_point;
    header.ranks = ranks_;
    header.input_blocks = sends ? 1 : 0;
    header.output_blocks = sends ? 0 : 1;
    plan::ProgramBuilder program(rank_);
    plan::BlockBuilder block =
        program.block(0, sends ? message.peer : -1, sends ? -1 : message.peer);
    if (sends)
      block.send(plan::input(0));
    else
      block.recv(plan::output(0));
    auto made = std::make_unique<PreparedMessage>();
    UNISONO_ASSIGN(made->owned, engine::make_execution(header, program.take(), *open_lane_,
                                                       fifo_options_, tiling_inside_node));
    made->execution = made->owned.get();
    made->set_messages(header.name);
    made->entry.peer = message.peer;
    made->entry.is_send = sends;
    made->entry.messages = 1;
    const std::lock_guard lock(mutex_);
    made->direction = &directions_[{message.peer, sends, 0}];
    known = std::move(made);
  }
  const std::uint64_t bytes = bytes_of(message);
  known->arguments.count = static_cast<std::int64_t>(bytes);
  known->arguments.call.what = call_of(message);
  known->arguments.input = message.send_data;
  known->arguments.output = message.recv_data;
  if (known->entry.bytes != bytes) known->kind = 0;
  known->entry.bytes = bytes;
  return known.get();
}

// As the engine's tile of a message of bytes.
std::uint64_t PointToPoint::piece_bytes(std::uint64_t message_bytes) const {
  return static_cast<std::uint64_t>(engine::CallMemory::tile_elements(
      transport::slot_payload_bytes(fifo_options_, Protocol::simple), 1, 1,
      static_cast<std::int64_t>(message_bytes), tiling_inside_node));
}

std::uint64_t PointToPoint::call_of(const Message& message) {
  return pack(message_fingerprint(message.type, message.count));
}

Status PointToPoint::prepare(std::span<const Message> messages, Task& task) {
  if (messages.size() != 1 || messages[0].peer != any_source)
    return prepare(messages, nullptr, task);
  task.owned = std::make_unique<AnySource>(*this, messages[0], task);
  task.parts.push_back(
      {.bytes = bytes_of(messages[0]), .message_tag = messages[0].tag, .messages = 1});
  task.execution = task.owned.get();
  task.entry.bytes = bytes_of(messages[0]);
  task.set_messages("any_source");
  return {};
}

bool PointToPoint::is_free(const Way& way) {
  const std::lock_guard lock(mutex_);
  const Direction& direction = directions_[way];
  return direction.serving.load() == direction.next_ticket.load();
}

void PointToPoint::count_on_stream(std::span<const Message> messages, Task& task) {
  std::map<Way, Task::Part> parts;
  for (const Message& message : messages) {
    if (message.peer == rank_ || message.count == 0) continue;
    Task::Part& part = parts[{message.peer, message.is_send, message.tag}];
    part.messages += 1;
    part.bytes += bytes_of(message);
  }
  const std::lock_guard lock(mutex_);
  for (auto& [way, part] : parts) {
    part.peer = way.peer;
    part.is_send = way.sends;
    part.message_tag = way.tag;
    part.sequence = on_streams_[way];
    on_streams_[way] += part.messages;
    task.parts.push_back(part);
  }
}

// With a lane, it holds the group's ticket.
Status PointToPoint::prepare(std::span<const Message> messages, std::unique_ptr<Lane> lane,
                             Task& task) {
  MessageGroup group(*this, rank_);
  for (const Message& message : messages) {
    group.add(message);
    task.entry.bytes += bytes_of(message);
  }
  UNISONO_TRY(group.add_self_copies());

  const std::size_t sends = group.sends().counts.size();
  const std::size_t recvs = group.recvs().counts.size();
  plan::Header header;
  header.name = "messages";
  header.collective = Collective::point_to_point;
  header.ranks = ranks_;
  header.channels = std::max(1, static_cast<int>(group.tags().size()));
  header.input_blocks = static_cast<int>(sends);
  header.output_blocks = static_cast<int>(recvs);
  const plan::RankProgram program = group.take_program();

  engine::Arguments& arguments = task.arguments;
  arguments.input = group.sends().base;
  // Receives' addresses came in as writable.
  arguments.output = const_cast<std::byte*>(group.recvs().base);
  arguments.inputs = group.sends().view();
  arguments.outputs = group.recvs().view();
  task.keep_lists();

  const bool draws = lane == nullptr;
  if (draws) lane = std::make_unique<Lane>(*this);
  lane->set_tags(group.tags());
  UNISONO_ASSIGN(task.owned, engine::make_execution(header, program, *lane, fifo_options_));
  for (const auto& [key, flow] : group.flows()) {
    const auto& [peer, sends_there, channel] = key;
    const Way way{peer, sends_there, group.tags()[static_cast<std::size_t>(channel)]};
    task.parts.push_back({.sequence = draws ? lane->draw(way, flow.messages) : lane->first_ticket(),
                          .bytes = flow.bytes,
                          .peer = peer,
                          .message_tag = way.tag,
                          .messages = flow.messages,
                          .is_send = sends_there});
  }
  task.execution = task.owned.get();
  task.lane = std::move(lane);
  task.set_messages(header.name);
  return {};
}

}  // namespace unisono::comm
