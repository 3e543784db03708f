// The links of a ControlNode: how they are made, read and lost. node.cc admits connections.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "comm/blame/inquiry.h"
#include "comm/control/dial.h"
#include "comm/control/directory.h"
#include "comm/control/node.h"

namespace unisono::comm {
namespace {

constexpr std::int64_t ns_per_ms = 1'000'000;
// Attempts to reach a rank whose listener is known to have been there; with doubling pauses from
// 20 ms the last follows 620 ms after the first.
constexpr int connect_attempts = 6;
constexpr std::int64_t first_pause_ns = 20 * ns_per_ms;

class Linking final : public Persistence {
 public:
  Linking(int peer, const sys::Address& address) : peer_(peer), where_(address.text()) {}

  // The peer answers when it is next inside a call, which may take as long as we may wait.
  bool waits_for_proof() const override { return true; }
  Result<std::int64_t> after(const Attempt& failed) override {
    const std::int64_t pause_ns = first_pause_ns << failed_;
    // Strangers may have taken the place, or the peer has not looked for a while: it is there, or
    // else the next connection is refused.
    if (failed.refusal != Refusal::dropped && ++failed_ == connect_attempts)
      return peer_error(peer_, "cannot connect to rank ", peer_, " at ", where_, ": ",
                        failed.why.message);
    return pause_ns;
  }
  Error too_late(const std::string& why) const override {
    return timeout_error(peer_, "rank ", peer_, " at ", where_,
                         " did not accept a connection in time: ", why);
  }

 private:
  const int peer_;
  const std::string where_;
  int failed_ = 0;
};

}  // namespace

void ControlNode::add_link(int peer, std::unique_ptr<Channel> channel) {
  links_.push_back(std::make_unique<Link>());
  Link& link = *links_.back();
  link.peer = peer;
  link.channel = std::move(channel);
  Link*& used = link_of_peer_[peer];
  if (used == nullptr || used->is_lost) used = &link;
  last_message_ns_[peer] = world_.now_ns();
  tasks_.spawn(read_loop(link));
  changed_.notify_all();
}

void ControlNode::lose(Link& link, const std::string& why, bool is_orderly) {
  if (link.is_lost) return;
  link.is_lost = true;
  link.channel->close();
  link.write_waiters.notify_all();
  if (is_orderly)
    tasks_.spawn(leave_to_others(link));
  else
    lost_.emplace(link.peer, Lost{FailureReason::gone, why});
  changed_.notify_all();
}

sys::Task<void> ControlNode::leave_to_others(Link& link) {
  const std::uint64_t last = last_ungreeted_;
  for (;;) {
    const auto other = std::ranges::find_if(
        links_, [&](const auto& one) { return one->peer == link.peer && !one->is_lost; });
    if (other != links_.end()) {
      link_of_peer_[link.peer] = other->get();
      co_return;
    }
    if (ungreeted_.empty() || ungreeted_.begin()->first > last) break;
    sys::Wait wait(world_.scheduler(), changed_, sys::no_deadline_ns);
    co_await wait;
  }
  lost_.emplace(link.peer, Lost{FailureReason::left, "it has left the job"});
  changed_.notify_all();
}

sys::Task<void> ControlNode::read_loop(Link& link) {
  while (!link.is_lost) {
    Result<Frame> frame = co_await link.channel->read(max_message_bytes_, sys::no_deadline_ns);
    if (!frame.ok()) {
      lose(link, frame.error().message, false);
      co_return;
    }
    last_message_ns_[link.peer] = world_.now_ns();
    if (frame->header.kind == FrameKind::bye)
      lose(link, {}, true);
    else if (!take(link, *frame))
      lose(link,
           str("it sent a frame of kind ", static_cast<int>(frame->header.kind),
               " that is malformed, unexpected, or too large for this rank"),
           false);
  }
}

bool ControlNode::take(Link& link, Frame& frame) {
  const FrameHeader& header = frame.header;
  const GroupId group{header.key.communicator, header.key.epoch};
  switch (header.kind) {
    case FrameKind::message:
      return deposit(link.peer, header.key, std::move(frame.payload));
    case FrameKind::failure: {
      const Result<ToldFailure> told = decode_failure(frame.payload, world_size_);
      if (!told.ok()) return false;
      const std::int64_t settles_ns =
          told->settles_ms == 0 ? 0 : world_.now_ns() + told->settles_ms * ns_per_ms;
      if (is_retired(header.key) ||
          !fail(group, told->error, {header.key.sequence, header.key.round}, settles_ns))
        return true;
      break;
    }
    case FrameKind::look_up:
    case FrameKind::found:
      return directory_ && directory_->on_frame(link.peer, header.kind, frame.payload);
    case FrameKind::progress:
    case FrameKind::suspicion:
    case FrameKind::ask:
    case FrameKind::answer:
    case FrameKind::dump:
      break;
    default:
      return false;
  }
  const auto listener = listeners_.find(group);
  if (listener == listeners_.end() && header.kind == FrameKind::ask && is_retired(header.key))
    spread(group, FrameKind::answer, encode(CallReport{.has_left = true}), std::span(&link.peer, 1),
           When::after_reading);
  return listener == listeners_.end() ||
         listener->second->on_frame(link.peer, header.kind, frame.payload);
}

Status ControlNode::check(int peer, GroupId group) const {
  if (const Error* error = failure(group)) return *error;
  return check_peer(peer);
}

Status ControlNode::check_peer(int peer) const {
  if (starved_) return *starved_;
  if (const auto lost = lost_.find(peer); lost != lost_.end())
    return peer_failure(lost->second.reason, peer, "the connection to rank ", peer, " was lost (",
                        lost->second.why, "); its process has probably ended");
  return {};
}

bool ControlNode::has_broken_off(int peer) const {
  const auto lost = lost_.find(peer);
  return lost != lost_.end() && lost->second.reason != FailureReason::left;
}

sys::Task<Result<std::unique_ptr<Channel>>> ControlNode::connect_authenticated(
    int peer, std::int64_t deadline_ns) {
  Result<sys::Address> address = sys::Address::parse(addresses_[peer]);
  if (!address.ok()) co_return address.take_error();
  // Both are ranks: one is this node's, the other the caller's.
  const Greeting greeting{job_, *Rank::among(rank_, world_size_), *Rank::among(peer, world_size_)};
  const std::vector<std::byte> payload = encode(greeting);
  const Destination where{*address, Purpose::link, link_key(job_key_), wire_};
  Linking linking(peer, *address);
  for (;;) {
    auto channel = co_await dial(world_, where, rank_, linking, deadline_ns);
    if (!channel.ok()) co_return channel.take_error();
    const MessageKey no_key;
    Status sent = co_await (*channel)->write(FrameKind::greet, no_key, payload, deadline_ns);
    if (sent.ok()) co_return std::move(*channel);
    // Another attempt that failed.
    Attempt unheard;
    unheard.fail(sent.error());
    const auto pause_ns = linking.after(unheard);
    if (!pause_ns.ok()) co_return pause_ns.error();
    sys::Wait pause(world_.scheduler(), std::min(deadline_ns, world_.now_ns() + *pause_ns));
    co_await pause;
  }
}

// Connecting is a task of its own: a group's failure ends the wait for a peer that does not answer.
sys::Task<Result<ControlNode::Link*>> ControlNode::usable_link(int peer, GroupId group,
                                                               std::int64_t deadline_ns) {
  unreachable_.erase(peer);
  for (;;) {
    const auto why = unreachable_.extract(peer);
    if (why && !why.mapped().timed_out && !has_link(peer)) co_return why.mapped();
    Status usable = check(peer, group);
    if (!usable.ok()) co_return usable.take_error();
    const auto found = link_of_peer_.find(peer);
    if (found != link_of_peer_.end()) co_return found->second;
    watch_peer(peer, deadline_ns);
    sys::Wait wait(world_.scheduler(), changed_, deadline_ns);
    const bool notified = co_await wait;
    if (!notified) co_return timeout_error(peer, "rank ", peer, " did not connect in time");
  }
}

void ControlNode::watch_peer(int peer, std::int64_t deadline_ns) {
  if (link_of_peer_.contains(peer) || connecting_.contains(peer)) return;
  seek(peer);
  if (!addresses_.contains(peer)) return;
  connecting_.insert(peer);
  tasks_.spawn(link_to_watch(peer, deadline_ns));
}

sys::Task<void> ControlNode::link_to_watch(int peer, std::int64_t deadline_ns) {
  Result<std::unique_ptr<Channel>> channel = co_await connect_authenticated(peer, deadline_ns);
  connecting_.erase(peer);
  if (!channel.ok()) unreachable_.insert_or_assign(peer, channel.error());
  if (channel.ok())
    add_link(peer, std::move(*channel));
  else if (channel.error().kind == ErrorKind::peer && !channel.error().timed_out &&
           !link_of_peer_.contains(peer))
    lost_.emplace(peer, Lost{FailureReason::gone, channel.error().message});
  changed_.notify_all();
}

sys::Task<Status> ControlNode::link(int peer, GroupId group, std::int64_t deadline_ns) {
  Result<Link*> made = co_await usable_link(peer, group, deadline_ns);
  if (!made.ok()) co_return made.take_error();
  co_return Status();
}

}  // namespace unisono::comm
