#include "comm/bootstrap_node.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/log.h"
#include "comm/bootstrap_handshake.h"

namespace unisono::comm {
namespace {

constexpr std::int64_t second_ns = 1'000'000'000;
// A stranger may hold a connection for this long.
constexpr std::int64_t handshake_timeout_ns = 10 * second_ns;
// Strangers held at once, beyond one connection that each rank may be making.
constexpr int max_strangers = 256;
// Attempts to reach a rank whose listener is known to have been there; with doubling pauses from
// 20 ms the last follows 620 ms after the first.
constexpr int connect_attempts = 6;
constexpr std::int64_t first_pause_ns = 20'000'000;
constexpr std::size_t read_step_bytes = std::size_t{1} << 20;

}  // namespace

sys::Task<Result<Frame>> read_frame(sys::Stream& stream, std::size_t max_message_bytes,
                                    std::int64_t deadline_ns, bool* is_orderly_end) {
  std::array<std::byte, frame_header_bytes> bytes;
  Result<std::size_t> begun = co_await stream.read_some(bytes, deadline_ns);
  if (is_orderly_end != nullptr) *is_orderly_end = begun.ok() && *begun == 0;
  if (!begun.ok()) co_return begun.take_error();
  if (*begun == 0) co_return environment_error("the connection was closed by the other side");
  const auto missing = std::span(bytes).subspan(*begun);
  Status received = co_await sys::read_exactly(stream, missing, deadline_ns);
  if (!received.ok()) co_return received.take_error();
  Result<FrameHeader> header = decode_frame_header(bytes, max_message_bytes);
  if (!header.ok()) co_return header.take_error();
  Frame frame;
  frame.header = *header;
  const std::size_t total = header->payload_bytes;
  while (frame.payload.size() < total) {
    const std::size_t filled = frame.payload.size();
    frame.payload.resize(std::min(total, filled + read_step_bytes));
    const auto rest = std::span(frame.payload).subspan(filled);
    received = co_await sys::read_exactly(stream, rest, deadline_ns);
    if (!received.ok()) co_return received.take_error();
  }
  co_return std::move(frame);
}

sys::Task<Status> write_frame(sys::Stream& stream, FrameKind kind, const MessageKey& key,
                              std::span<const std::byte> payload, std::int64_t deadline_ns) {
  const std::vector<std::byte> bytes = encode_frame(kind, key, payload);
  Status sent = co_await sys::write_all(stream, bytes, deadline_ns);
  co_return std::move(sent);
}

ControlNode::ControlNode(sys::World& world, int rank, int world_size, std::string secret)
    : world_(world),
      rank_(rank),
      world_size_(world_size),
      secret_(std::move(secret)),
      max_message_bytes_(
          max_table_bytes(static_cast<std::size_t>(world_size), max_exchange_bytes)) {}

ControlNode::~ControlNode() { tasks_.cancel_all(); }

void ControlNode::start(std::unique_ptr<sys::Listener> listener, EnrolHandler on_enrol) {
  listener_ = std::move(listener);
  on_enrol_ = std::move(on_enrol);
  tasks_.spawn(accept_loop());
}

void ControlNode::set_job(std::uint64_t job) {
  job_ = job;
  changed_.notify_all();
}

void ControlNode::set_address(int peer, const std::string& address) {
  addresses_[peer] = address;
  changed_.notify_all();
}

sys::Task<void> ControlNode::accept_loop() {
  for (;;) {
    Result<std::unique_ptr<sys::Stream>> accepted = co_await listener_->accept(sys::no_deadline_ns);
    if (accepted.ok()) {
      if (being_served_ < world_size_ + max_strangers) tasks_.spawn(serve(std::move(*accepted)));
      continue;
    }
    log(LogLevel::warn, accepted.error().message);
    sys::Wait pause(world_.scheduler(), world_.now_ns() + second_ns / 10);
    co_await pause;
  }
}

sys::Task<void> ControlNode::serve(std::unique_ptr<sys::Stream> stream) {
  ++being_served_;
  const std::string from = stream->peer_address().text();
  Status served = co_await serve_checked(stream);
  if (!served.ok())
    log(LogLevel::warn, "rank ", rank_, " refused a connection from ", from, ": ",
        served.error().message);
}

sys::Task<Status> ControlNode::serve_checked(std::unique_ptr<sys::Stream>& stream) {
  const std::int64_t deadline_ns = world_.now_ns() + handshake_timeout_ns;
  Status proved = co_await prove_to_client(world_, *stream, secret_, deadline_ns);
  --being_served_;
  if (!proved.ok()) co_return std::move(proved);
  Result<Frame> frame = co_await read_frame(*stream, 0, deadline_ns);
  if (!frame.ok()) co_return frame.take_error();
  const FrameKind kind = frame->header.kind;
  if (kind == FrameKind::enrol) {
    Result<Enrolment> enrolment = decode_enrolment(frame->payload);
    if (!enrolment.ok()) co_return enrolment.take_error();
    if (!on_enrol_)
      co_return environment_error("rank ", enrolment->rank, " wants to enrol, but rank ", rank_,
                                  " is not, or no longer, a rendezvous");
    co_await on_enrol_(std::move(stream), *enrolment);
    co_return Status();
  }
  if (kind != FrameKind::greet)
    co_return environment_error("a connection began with frame kind ", static_cast<int>(kind));
  Result<Greeting> greeting = decode_greeting(frame->payload);
  if (!greeting.ok()) co_return greeting.take_error();
  Status known = co_await wait_for_job(deadline_ns);
  if (!known.ok()) co_return std::move(known);
  const auto ranks = static_cast<std::uint32_t>(world_size_);
  if (greeting->job != job_ || greeting->from >= ranks ||
      greeting->to != static_cast<std::uint32_t>(rank_))
    co_return environment_error("the greeting is of job ", greeting->job, ", rank ", greeting->from,
                                " to rank ", greeting->to, "; this is job ", job_, ", rank ", rank_,
                                " of ", world_size_);
  add_link(static_cast<int>(greeting->from), std::move(stream));
  co_return Status();
}

sys::Task<Status> ControlNode::wait_for_job(std::int64_t deadline_ns) {
  while (job_ == 0) {
    sys::Wait wait(world_.scheduler(), changed_, deadline_ns);
    const bool notified = co_await wait;
    if (!notified) co_return timeout_error(-1, "this rank does not know its job yet");
  }
  co_return Status();
}

void ControlNode::add_link(int peer, std::unique_ptr<sys::Stream> stream) {
  links_.push_back(std::make_unique<Link>());
  Link& link = *links_.back();
  link.peer = peer;
  link.stream = std::move(stream);
  link_of_peer_.emplace(peer, &link);
  tasks_.spawn(read_loop(link));
  changed_.notify_all();
}

void ControlNode::lose(Link& link, const std::string& why, bool is_orderly) {
  if (link.is_lost) return;
  link.is_lost = true;
  link.stream->close();
  link.write_turn.notify_all();
  const auto other = std::find_if(links_.begin(), links_.end(), [&](const auto& one) {
    return one->peer == link.peer && !one->is_lost;
  });
  if (is_orderly && other != links_.end())
    link_of_peer_[link.peer] = other->get();
  else
    lost_.emplace(link.peer, why);
  changed_.notify_all();
}

sys::Task<void> ControlNode::read_loop(Link& link) {
  while (!link.is_lost) {
    bool is_orderly_end = false;
    Result<Frame> frame =
        co_await read_frame(*link.stream, max_message_bytes_, sys::no_deadline_ns, &is_orderly_end);
    if (!frame.ok()) {
      lose(link, frame.error().message, is_orderly_end);
      co_return;
    }
    const FrameHeader& header = frame->header;
    if (header.kind == FrameKind::failure) {
      const Error error = decode_failure(frame->payload);
      if (!is_retired(header.key))
        fail({header.key.communicator, header.key.epoch}, error,
             {header.key.sequence, header.key.round});
    } else if (header.kind != FrameKind::message ||
               !deposit(link.peer, header.key, std::move(frame->payload))) {
      lose(link,
           str("it sent a frame of kind ", static_cast<int>(header.kind),
               " that is not due, or more than this rank can hold"),
           false);
    }
  }
}

Status ControlNode::check(int peer, GroupId group) const {
  if (const Error* error = failure(group)) return *error;
  if (const auto lost = lost_.find(peer); lost != lost_.end())
    return peer_error(peer, "the connection to rank ", peer, " broke (", lost->second,
                      "); its process has probably ended");
  return {};
}

sys::Task<Result<std::unique_ptr<sys::Stream>>> ControlNode::connect_authenticated(
    int peer, std::int64_t deadline_ns) {
  Result<sys::Address> address = sys::Address::parse(addresses_[peer]);
  if (!address.ok()) co_return address.take_error();
  const Greeting greeting{job_, static_cast<std::uint32_t>(rank_),
                          static_cast<std::uint32_t>(peer)};
  const std::vector<std::byte> payload = encode(greeting);
  const MessageKey no_key;
  std::string why;
  std::int64_t pause_ns = first_pause_ns;
  for (int attempt = 0; attempt < connect_attempts && world_.now_ns() < deadline_ns; ++attempt) {
    if (attempt > 0) {
      sys::Wait pause(world_.scheduler(), std::min(deadline_ns, world_.now_ns() + pause_ns));
      co_await pause;
      pause_ns *= 2;
    }
    const std::int64_t attempt_ns = std::min(deadline_ns, world_.now_ns() + handshake_timeout_ns);
    Result<std::unique_ptr<sys::Stream>> stream = co_await world_.connect(*address, attempt_ns);
    if (!stream.ok()) {
      why = stream.error().message;
      continue;
    }
    // The peer answers when it is next inside a call, which may take as long as we may wait.
    bool secret_refused = false;
    Status ready = co_await prove_to_server(world_, **stream, secret_, deadline_ns, secret_refused);
    if (ready.ok())
      ready = co_await write_frame(**stream, FrameKind::greet, no_key, payload, deadline_ns);
    if (ready.ok()) co_return std::move(*stream);
    why = ready.error().message;
  }
  if (world_.now_ns() >= deadline_ns)
    co_return timeout_error(peer, "rank ", peer, " at ", address->text(),
                            " did not take a connection in time: ", why);
  co_return peer_error(peer, "cannot connect to rank ", peer, " at ", address->text(), ": ", why);
}

sys::Task<Result<ControlNode::Link*>> ControlNode::usable_link(int peer, GroupId group,
                                                               std::int64_t deadline_ns) {
  for (;;) {
    Status usable = check(peer, group);
    if (!usable.ok()) co_return usable.take_error();
    const auto found = link_of_peer_.find(peer);
    if (found != link_of_peer_.end()) co_return found->second;
    if (addresses_.contains(peer) && !connecting_.contains(peer)) {
      connecting_.insert(peer);
      Result<std::unique_ptr<sys::Stream>> stream =
          co_await connect_authenticated(peer, deadline_ns);
      connecting_.erase(peer);
      changed_.notify_all();
      if (!stream.ok()) co_return stream.take_error();
      add_link(peer, std::move(*stream));
      continue;
    }
    sys::Wait wait(world_.scheduler(), changed_, deadline_ns);
    const bool notified = co_await wait;
    if (!notified) co_return timeout_error(peer, "rank ", peer, " did not connect in time");
  }
}

void ControlNode::watch_peer(int peer, std::int64_t deadline_ns) {
  if (link_of_peer_.contains(peer) || connecting_.contains(peer) || !addresses_.contains(peer))
    return;
  connecting_.insert(peer);
  tasks_.spawn(link_to_watch(peer, deadline_ns));
}

sys::Task<void> ControlNode::link_to_watch(int peer, std::int64_t deadline_ns) {
  Result<std::unique_ptr<sys::Stream>> stream = co_await connect_authenticated(peer, deadline_ns);
  connecting_.erase(peer);
  if (stream.ok())
    add_link(peer, std::move(*stream));
  else if (!stream.error().timed_out && !link_of_peer_.contains(peer))
    lost_.emplace(peer, stream.error().message);
  changed_.notify_all();
}

sys::Task<Status> ControlNode::link(int peer, GroupId group, std::int64_t deadline_ns) {
  Result<Link*> made = co_await usable_link(peer, group, deadline_ns);
  if (!made.ok()) co_return made.take_error();
  co_return Status();
}

}  // namespace unisono::comm
