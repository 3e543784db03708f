#include "comm/point_to_point.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/try.h"
#include "plan/builder.h"

namespace unisono::comm {
namespace {

std::uint64_t bytes_of(const Message& message) {
  return static_cast<std::uint64_t>(message.count) * size_bytes(message.type);
}

// One direction's blocks: where each piece of each message lies, from the first one's address.
struct Blocks {
  const std::byte* base = nullptr;
  std::vector<std::int64_t> counts;
  std::vector<std::int64_t> displacements;

  // Adds a message; returns how many pieces it has.
  std::int64_t add(const void* data, std::uint64_t bytes, std::uint64_t piece_bytes) {
    if (base == nullptr) base = static_cast<const std::byte*>(data);
    const auto begin =
        reinterpret_cast<std::intptr_t>(data) - reinterpret_cast<std::intptr_t>(base);
    std::int64_t pieces = 0;
    for (std::uint64_t done = 0; done < bytes; done += piece_bytes, ++pieces) {
      counts.push_back(static_cast<std::int64_t>(std::min(piece_bytes, bytes - done)));
      displacements.push_back(begin + static_cast<std::int64_t>(done));
    }
    return pieces;
  }
};

// The messages of a group as a program.
class Group {
 public:
  Group(int rank, std::uint64_t piece_bytes)
      : rank_(rank), piece_bytes_(piece_bytes), program_(rank) {}

  void add(const Message& message) {
    Blocks& blocks = message.is_send ? sends_ : recvs_;
    const auto first = static_cast<std::int64_t>(blocks.counts.size());
    const void* data = message.is_send ? message.send_data : message.recv_data;
    const std::int64_t pieces = blocks.add(data, bytes_of(message), piece_bytes_);
    if (message.peer == rank_) {
      (message.is_send ? to_self_ : from_self_).push_back({first, bytes_of(message)});
      return;
    }
    if (pieces == 0) return;
    plan::BlockBuilder& block = thread_block(message.peer, message.is_send);
    block.loop(pieces);
    if (message.is_send)
      block.send(plan::input(plan::affine(first, 1)));
    else
      block.recv(plan::output(plan::affine(first, 1)));
    block.end_loop();
  }

  Status add_self_copies() {
    if (to_self_.size() != from_self_.size())
      return misuse("rank ", rank_, " sends itself ", to_self_.size(), " messages and receives ",
                    from_self_.size(), " of itself in one group; they must be as many");
    if (to_self_.empty()) return {};
    plan::BlockBuilder block = program_.block(0, -1, -1);
    for (std::size_t i = 0; i < to_self_.size(); ++i) {
      if (to_self_[i].bytes != from_self_[i].bytes)
        return misuse("rank ", rank_, " sends itself ", to_self_[i].bytes, " bytes and expects ",
                      from_self_[i].bytes);
      const auto pieces = (to_self_[i].bytes + piece_bytes_ - 1) / piece_bytes_;
      block.loop(static_cast<std::int64_t>(pieces));
      block.copy(plan::input(plan::affine(to_self_[i].first, 1)),
                 plan::output(plan::affine(from_self_[i].first, 1)));
      block.end_loop();
    }
    return {};
  }

  plan::RankProgram take_program() { return program_.take(); }
  const Blocks& sends() const { return sends_; }
  const Blocks& recvs() const { return recvs_; }

 private:
  struct SelfMessage {
    std::int64_t first;  // its first block
    std::uint64_t bytes;
  };

  plan::BlockBuilder& thread_block(int peer, bool sends) {
    const std::pair key(peer, sends);
    auto found = thread_blocks_.find(key);
    if (found == thread_blocks_.end()) {
      const auto block = program_.block(0, sends ? peer : -1, sends ? -1 : peer);
      found = thread_blocks_.emplace(key, block).first;
    }
    return found->second;
  }

  int rank_;
  std::uint64_t piece_bytes_;
  plan::ProgramBuilder program_;
  std::map<std::pair<int, bool>, plan::BlockBuilder> thread_blocks_;
  Blocks sends_, recvs_;
  std::vector<SelfMessage> to_self_, from_self_;
};

}  // namespace

// The connections as one group sees them: open to it when its tickets are served.
class PointToPoint::Lane : public engine::Resources {
 public:
  explicit Lane(PointToPoint& owner) : owner_(owner) {}
  ~Lane() override {
    const std::lock_guard lock(owner_.mutex_);
    for (const auto& [direction, ticket] : tickets_)
      if (direction->serving == ticket) ++direction->serving;
  }

  void draw(int peer, bool sends) {
    const std::lock_guard lock(owner_.mutex_);
    Direction& direction = owner_.directions_[{peer, sends}];
    tickets_.emplace_back(&direction, direction.next_ticket++);
  }

  Result<transport::SendFifo*> send_fifo(int peer, int, Protocol protocol) override {
    if (!served(peer, true)) return nullptr;
    return owner_.connections_.send_fifo(peer, point_to_point_channel, protocol);
  }
  Result<transport::RecvFifo*> recv_fifo(int peer, int, Protocol protocol) override {
    if (!served(peer, false)) return nullptr;
    return owner_.connections_.recv_fifo(peer, point_to_point_channel, protocol);
  }
  Status progress() override { return owner_.connections_.progress(); }
  Result<void*> scratch(std::size_t) override {
    return bug("a group of messages asked for scratch memory");
  }

 private:
  bool served(int peer, bool sends) {
    const std::lock_guard lock(owner_.mutex_);
    const Direction& direction = owner_.directions_[{peer, sends}];
    for (const auto& [drawn, ticket] : tickets_)
      if (drawn == &direction) return direction.serving == ticket;
    return false;
  }

  PointToPoint& owner_;
  std::vector<std::pair<Direction*, std::uint64_t>> tickets_;
};

PointToPoint::PointToPoint(Connections& connections, int rank, int ranks,
                           const transport::FifoOptions& fifo_options)
    : connections_(connections), rank_(rank), ranks_(ranks), fifo_options_(fifo_options) {}

Status PointToPoint::prepare(std::span<const Message> messages, Task& task) {
  // As the engine's tile: a slot's payload, in whole cache lines.
  const std::uint64_t piece_bytes =
      transport::slot_payload_bytes(fifo_options_, Protocol::simple) / 64 * 64;
  Group group(rank_, piece_bytes);
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
  header.input_blocks = static_cast<int>(sends);
  header.output_blocks = static_cast<int>(recvs);
  const plan::RankProgram program = group.take_program();

  for (const Blocks* blocks : {&group.sends(), &group.recvs()}) {
    task.counts.insert(task.counts.end(), blocks->counts.begin(), blocks->counts.end());
    task.counts.insert(task.counts.end(), blocks->displacements.begin(),
                       blocks->displacements.end());
  }
  const std::span<const std::int64_t> counts(task.counts);
  engine::Arguments& arguments = task.arguments;
  arguments.input = group.sends().base;
  // Receives' addresses came in as writable.
  arguments.output = const_cast<std::byte*>(group.recvs().base);
  arguments.input_counts = counts.first(sends);
  arguments.input_displacements = counts.subspan(sends, sends);
  arguments.output_counts = counts.subspan(2 * sends, recvs);
  arguments.output_displacements = counts.subspan(2 * sends + recvs, recvs);

  auto lane = std::make_unique<Lane>(*this);
  UNISONO_ASSIGN(task.owned, engine::make_execution(header, program, *lane, fifo_options_));
  for (const plan::ThreadBlock& block : program.thread_blocks) {
    if (block.send_peer >= 0) lane->draw(block.send_peer, true);
    if (block.recv_peer >= 0) lane->draw(block.recv_peer, false);
  }
  task.execution = task.owned.get();
  task.lane = std::move(lane);
  task.entry.collective = Collective::point_to_point;
  task.entry.type = DataType::uint8;
  task.entry.set_plan(header.name);
  return {};
}

}  // namespace unisono::comm
