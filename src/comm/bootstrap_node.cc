#include "comm/bootstrap_node.h"

#include <algorithm>
#include <array>
#include <tuple>

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
constexpr std::int64_t tell_timeout_ns = 2 * second_ns;
// Attempts to reach a rank whose listener is known to have been there; with doubling pauses from
// 20 ms the last follows 620 ms after the first.
constexpr int connect_attempts = 6;
constexpr std::int64_t first_pause_ns = 20'000'000;
// What a peer may have sent ahead of our calls. A collective exchange cannot run ahead by more
// than one call for each communicator, so only a broken peer gets here.
constexpr std::size_t max_unclaimed_bytes = std::size_t{1} << 28;
constexpr std::size_t max_unclaimed_messages = 1 << 16;
constexpr std::size_t max_retired = 4096;
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
  if (kind != FrameKind::greet && kind != FrameKind::attach)
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
  const int from = static_cast<int>(greeting->from);
  if (kind == FrameKind::greet) {
    add_link(from, std::move(stream));
  } else if (!is_retired(frame->header.key)) {
    attached_[{frame->header.key, from}].push_back(std::move(stream));
    changed_.notify_all();
  }
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
             {header.key.tag, header.key.round});
    } else if (header.kind != FrameKind::message ||
               !deposit(link.peer, header.key, std::move(frame->payload))) {
      lose(link,
           str("it sent a frame of kind ", static_cast<int>(header.kind),
               " that is not due, or more than this rank can hold"),
           false);
    }
  }
}

bool ControlNode::deposit(int peer, const MessageKey& key, std::vector<std::byte> payload) {
  if (is_retired(key)) return true;
  std::size_t& unclaimed = unclaimed_bytes_[peer];
  auto& queue = mail_[{key, peer}];
  if (unclaimed + payload.size() > max_unclaimed_bytes + max_message_bytes_ ||
      mail_.size() > max_unclaimed_messages || queue.size() > max_unclaimed_messages)
    return false;
  unclaimed += payload.size();
  queue.push_back(std::move(payload));
  changed_.notify_all();
  return true;
}

Status ControlNode::check(int peer, GroupId group) const {
  if (const Error* error = failure(group)) return *error;
  if (const auto lost = lost_.find(peer); lost != lost_.end())
    return peer_error(peer, "the connection to rank ", peer, " broke (", lost->second,
                      "); its process has probably ended");
  return {};
}

sys::Task<Result<std::unique_ptr<sys::Stream>>> ControlNode::connect_authenticated(
    int peer, FrameKind purpose, const MessageKey& key, std::int64_t deadline_ns) {
  Result<sys::Address> address = sys::Address::parse(addresses_[peer]);
  if (!address.ok()) co_return address.take_error();
  const Greeting greeting{job_, static_cast<std::uint32_t>(rank_),
                          static_cast<std::uint32_t>(peer)};
  const std::vector<std::byte> payload = encode(greeting);
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
    if (ready.ok()) ready = co_await write_frame(**stream, purpose, key, payload, deadline_ns);
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
      const MessageKey no_key;
      Result<std::unique_ptr<sys::Stream>> stream =
          co_await connect_authenticated(peer, FrameKind::greet, no_key, deadline_ns);
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
  const MessageKey no_key;
  Result<std::unique_ptr<sys::Stream>> stream =
      co_await connect_authenticated(peer, FrameKind::greet, no_key, deadline_ns);
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

sys::Task<Status> ControlNode::send(int peer, const MessageKey& key,
                                    std::span<const std::byte> payload, std::int64_t deadline_ns) {
  const GroupId group{key.communicator, key.epoch};
  Result<Link*> found = co_await usable_link(peer, group, deadline_ns);
  if (!found.ok()) co_return found.take_error();
  Link& link = **found;
  while (link.is_being_written && !link.is_lost) {
    sys::Wait turn(world_.scheduler(), link.write_turn, deadline_ns);
    const bool notified = co_await turn;
    if (!notified) co_return timeout_error(peer, "rank ", peer, " takes no messages");
  }
  if (Status usable = check(peer, group); !usable.ok()) co_return std::move(usable);
  link.is_being_written = true;
  Status sent = co_await write_frame(*link.stream, FrameKind::message, key, payload, deadline_ns);
  link.is_being_written = false;
  link.write_turn.notify_all();
  if (sent.ok()) co_return Status();
  // Part of the frame may be out: what follows on this link could not be understood.
  const bool timed_out = sent.error().timed_out;
  lose(link, sent.error().message, false);
  if (timed_out) co_return timeout_error(peer, "rank ", peer, " takes no messages");
  co_return check(peer, group);
}

sys::Task<Result<std::vector<std::byte>>> ControlNode::receive(int peer, const MessageKey& key,
                                                               std::int64_t deadline_ns) {
  const GroupId group{key.communicator, key.epoch};
  for (;;) {
    // What arrived before a failure counts.
    if (const auto mail = mail_.find({key, peer}); mail != mail_.end()) {
      std::vector<std::byte> message = std::move(mail->second.front());
      mail->second.pop_front();
      if (mail->second.empty()) mail_.erase(mail);
      unclaimed_bytes_[peer] -= message.size();
      co_return std::move(message);
    }
    Status usable = check(peer, group);
    if (!usable.ok()) co_return usable.take_error();
    watch_peer(peer, deadline_ns);
    sys::Wait wait(world_.scheduler(), changed_, deadline_ns);
    const bool notified = co_await wait;
    if (!notified) co_return timeout_error(peer, "rank ", peer, " sent nothing in time");
  }
}

void ControlNode::spread_failure(GroupId group, std::vector<int> peers) {
  tasks_.spawn(tell_failure(group, std::move(peers)));
}

sys::Task<void> ControlNode::tell_failure(GroupId group, std::vector<int> peers) {
  const auto failed = failures_.find(group);
  if (failed == failures_.end()) co_return;
  const std::vector<std::byte> payload = encode_failure(failed->second.error);
  const ExchangePlace place = failed->second.place;
  const MessageKey key{group.communicator, group.epoch, place.sequence, place.round, false};
  const std::int64_t deadline_ns = world_.now_ns() + tell_timeout_ns;
  for (const int peer : peers) {
    const auto found = link_of_peer_.find(peer);
    if (found == link_of_peer_.end()) continue;
    Link& link = *found->second;
    bool has_turn = true;
    while (link.is_being_written && !link.is_lost && has_turn) {
      sys::Wait turn(world_.scheduler(), link.write_turn, deadline_ns);
      has_turn = co_await turn;
    }
    if (link.is_lost || !has_turn) continue;
    link.is_being_written = true;
    Status sent = co_await write_frame(*link.stream, FrameKind::failure, key, payload, deadline_ns);
    link.is_being_written = false;
    link.write_turn.notify_all();
    if (!sent.ok()) lose(link, sent.error().message, false);
  }
}

sys::Task<Result<std::unique_ptr<sys::Stream>>> ControlNode::attach(int peer, const MessageKey& key,
                                                                    std::int64_t deadline_ns) {
  Status usable = check(peer, {key.communicator, key.epoch});
  if (!usable.ok()) co_return usable.take_error();
  Result<std::unique_ptr<sys::Stream>> stream =
      co_await connect_authenticated(peer, FrameKind::attach, key, deadline_ns);
  co_return std::move(stream);
}

sys::Task<Result<std::unique_ptr<sys::Stream>>> ControlNode::accept_attached(
    int peer, const MessageKey& key, std::int64_t deadline_ns) {
  for (;;) {
    if (const auto found = attached_.find({key, peer}); found != attached_.end()) {
      std::unique_ptr<sys::Stream> stream = std::move(found->second.front());
      found->second.pop_front();
      if (found->second.empty()) attached_.erase(found);
      co_return std::move(stream);
    }
    Status usable = check(peer, {key.communicator, key.epoch});
    if (!usable.ok()) co_return usable.take_error();
    watch_peer(peer, deadline_ns);
    sys::Wait wait(world_.scheduler(), changed_, deadline_ns);
    const bool notified = co_await wait;
    if (!notified) co_return timeout_error(peer, "rank ", peer, " did not connect in time");
  }
}

void ControlNode::fail(GroupId group, const Error& error, ExchangePlace place) {
  const auto order = [](const Failure& failure) {
    return std::tuple(!failure.error.aborted, failure.error.timed_out, failure.place,
                      failure.error.peer);
  };
  Failure told{error, place};
  const auto [known, is_first] = failures_.try_emplace(group, told);
  if (!is_first) {
    if (order(told) >= order(known->second)) return;
    known->second = std::move(told);
  }
  changed_.notify_all();
}

const Error* ControlNode::failure(GroupId group) const {
  const auto found = failures_.find(group);
  return found == failures_.end() ? nullptr : &found->second.error;
}

bool ControlNode::is_retired(const MessageKey& key) const {
  const auto newest = newest_epoch_.find(key.communicator);
  if (newest != newest_epoch_.end() && key.epoch < newest->second) return true;
  const GroupId group{key.communicator, key.epoch};
  return std::find(retired_.begin(), retired_.end(), group) != retired_.end();
}

void ControlNode::open_group(GroupId group) {
  std::uint32_t& newest = newest_epoch_[group.communicator];
  newest = std::max(newest, group.epoch);
}

void ControlNode::forget_group(GroupId group) {
  for (auto mail = mail_.begin(); mail != mail_.end();) {
    const auto& [key, peer] = mail->first;
    if (GroupId{key.communicator, key.epoch} != group) {
      ++mail;
      continue;
    }
    for (const auto& message : mail->second) unclaimed_bytes_[peer] -= message.size();
    mail = mail_.erase(mail);
  }
  std::erase_if(attached_, [&](const auto& entry) {
    const MessageKey& key = entry.first.first;
    return GroupId{key.communicator, key.epoch} == group;
  });
  failures_.erase(group);
  retired_.push_back(group);
  if (retired_.size() > max_retired) retired_.pop_front();
}

}  // namespace unisono::comm
