// The mailbox, failures and groups of a ControlNode; node.cc has its connections.
#include <algorithm>

#include "base/error.h"
#include "comm/control/node.h"

namespace unisono::comm {
namespace {

constexpr std::int64_t tell_timeout_ns = 2'000'000'000;
// What a peer may have sent ahead of our calls. A collective exchange cannot run ahead by more
// than one call for each communicator, so only a broken peer gets here.
constexpr std::size_t max_unclaimed_bytes = std::size_t{1} << 28;
constexpr std::size_t max_unclaimed_messages = 1 << 16;
// Failures remembered of groups that this rank has not made (yet).
constexpr std::size_t max_failures = 1 << 16;
constexpr std::size_t max_retired = 4096;
constexpr std::int64_t ns_per_ms = 1'000'000;

}  // namespace

bool ControlNode::deposit(int peer, const MessageKey& key, std::vector<std::byte> payload) {
  // A failure ends the epoch of its group: what had come before counts, and nothing after it.
  if (is_retired(key) || failures_.contains({key.communicator, key.epoch})) return true;
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

sys::Task<Status> ControlNode::send(int peer, const MessageKey& key,
                                    std::span<const std::byte> payload, std::int64_t deadline_ns) {
  const GroupId group{key.communicator, key.epoch};
  Result<Link*> found = co_await usable_link(peer, group, deadline_ns);
  if (!found.ok()) co_return found.take_error();
  Link& link = **found;
  while (link.is_being_written && !link.is_lost) {
    sys::Wait turn(world_.scheduler(), link.write_waiters, deadline_ns);
    const bool notified = co_await turn;
    if (!notified)
      co_return timeout_error(peer, "rank ", peer, " does not accept control messages in time");
  }
  if (Status usable = check(peer, group); !usable.ok()) co_return std::move(usable);
  link.is_being_written = true;
  Status sent = co_await link.channel->write(FrameKind::message, key, payload, deadline_ns);
  link.is_being_written = false;
  link.write_waiters.notify_all();
  if (sent.ok()) co_return Status();
  // Part of the frame may be out: what follows on this link could not be understood.
  const bool timed_out = sent.error().timed_out;
  lose(link, sent.error().message, false);
  if (timed_out)
    co_return timeout_error(peer, "rank ", peer, " does not accept control messages in time");
  co_return check(peer, group);
}

std::optional<std::vector<std::byte>> ControlNode::take_mail(int peer, const MessageKey& key) {
  const auto mail = mail_.find({key, peer});
  if (mail == mail_.end()) return std::nullopt;
  std::vector<std::byte> message = std::move(mail->second.front());
  mail->second.pop_front();
  if (mail->second.empty()) mail_.erase(mail);
  unclaimed_bytes_[peer] -= message.size();
  return message;
}

sys::Task<Result<std::vector<std::byte>>> ControlNode::receive(int peer, const MessageKey& key,
                                                               std::int64_t deadline_ns) {
  int waits_for = peer;
  const std::vector<int> peers(1, peer);
  auto received = co_await receive_all(peers, key, deadline_ns, waits_for);
  if (!received.ok()) co_return received.take_error();
  co_return std::move(received->front());
}

sys::Task<Result<std::vector<std::vector<std::byte>>>> ControlNode::receive_all(
    std::vector<int> peers, MessageKey key, std::int64_t deadline_ns, int& waits_for) {
  const GroupId group{key.communicator, key.epoch};
  std::vector<std::vector<std::byte>> messages(peers.size());
  std::vector<bool> has_come(peers.size());
  for (;;) {
    // What arrived before a failure counts.
    for (std::size_t i = 0; i < peers.size(); ++i)
      if (!has_come[i])
        if (auto message = take_mail(peers[i], key)) {
          messages[i] = std::move(*message);
          has_come[i] = true;
        }
    const auto first = std::ranges::find(has_come, false);
    if (first == has_come.end()) co_return std::move(messages);
    waits_for = peers[static_cast<std::size_t>(first - has_come.begin())];
    for (std::size_t i = 0; i < peers.size(); ++i) {
      if (has_come[i]) continue;
      Status usable = check(peers[i], group);
      if (!usable.ok()) {
        waits_for = peers[i];
        co_return usable.take_error();
      }
      watch_peer(peers[i], deadline_ns);
    }
    sys::Wait wait(world_.scheduler(), changed_, deadline_ns);
    const bool notified = co_await wait;
    if (!notified)
      co_return timeout_error(waits_for, "rank ", waits_for, " sent no control message in time");
  }
}

void ControlNode::spread_failure(GroupId group, std::span<const int> peers) {
  const auto failed = failures_.find(group);
  if (failed == failures_.end()) return;
  const ExchangePlace place = failed->second.place;
  const std::int64_t until_ns = settles_ns(group);
  const std::int64_t left_ns = until_ns == 0 ? 0 : until_ns - world_.now_ns();
  const auto left_ms = static_cast<std::uint32_t>((left_ns + ns_per_ms - 1) / ns_per_ms);
  tell_linked(FrameKind::failure, {group.communicator, group.epoch, place.sequence, place.round},
              encode_failure(failed->second.error, std::min(left_ms, most_settling_ms)), peers,
              When::now);
}

void ControlNode::spread(GroupId group, FrameKind kind, std::span<const std::byte> payload,
                         std::span<const int> peers, When when) {
  tell_linked(kind, {group.communicator, group.epoch, 0, 0}, {payload.begin(), payload.end()},
              peers, when);
}

// Each link by a task of its own: one that takes nothing holds up none of the others.
void ControlNode::tell_linked(FrameKind kind, const MessageKey& key, std::vector<std::byte> payload,
                              std::span<const int> peers, When when) {
  const auto shared = std::make_shared<const std::vector<std::byte>>(std::move(payload));
  const auto tell_one = [&](Link& link) { tasks_.spawn(tell(link, kind, key, shared, when)); };
  // A rank of a large job has few links.
  if (peers.size() == static_cast<std::size_t>(world_size_)) {
    for (const auto& [peer, link] : link_of_peer_) tell_one(*link);
    return;
  }
  for (const int peer : peers)
    if (const auto found = link_of_peer_.find(peer); found != link_of_peer_.end())
      tell_one(*found->second);
}

sys::Task<void> ControlNode::tell(Link& link, FrameKind kind, MessageKey key, Payload payload,
                                  When when) {
  if (when == When::after_reading) {
    sys::Wait turn(world_.scheduler(), world_.now_ns());
    co_await turn;
  }
  const std::int64_t deadline_ns = world_.now_ns() + tell_timeout_ns;
  while (link.is_being_written && !link.is_lost) {
    sys::Wait turn(world_.scheduler(), link.write_waiters, deadline_ns);
    const bool notified = co_await turn;
    if (!notified) co_return;
  }
  if (link.is_lost) co_return;
  link.is_being_written = true;
  Status sent = co_await link.channel->write(kind, key, *payload, deadline_ns);
  link.is_being_written = false;
  link.write_waiters.notify_all();
  if (!sent.ok()) lose(link, sent.error().message, false);
}

std::int64_t ControlNode::last_message_ns(int peer) const {
  const auto heard = last_message_ns_.find(peer);
  return heard == last_message_ns_.end() ? 0 : heard->second;
}

void ControlNode::detach(GroupId group, const GroupListener& listener) {
  const auto found = listeners_.find(group);
  if (found != listeners_.end() && found->second == &listener) listeners_.erase(found);
}

bool ControlNode::fail(GroupId group, const Error& error, ExchangePlace place,
                       std::int64_t settles_ns) {
  if (!would_count(group, error, place, settles_ns)) return false;
  failures_.insert_or_assign(group, Failure{error, place, settles_ns, failures(group) + 1});
  changed_.notify_all();
  return true;
}

bool ControlNode::would_count(GroupId group, const Error& error, ExchangePlace place,
                              std::int64_t settles_ns) const {
  const auto known = failures_.find(group);
  if (known == failures_.end()) return failures_.size() < max_failures;
  return Failure{error, place, settles_ns}.order() < known->second.order();
}

const Error* ControlNode::failure(GroupId group) const {
  const auto found = failures_.find(group);
  return found == failures_.end() ? nullptr : &found->second.error;
}

std::uint64_t ControlNode::failures(GroupId group) const {
  const auto found = failures_.find(group);
  return found == failures_.end() ? 0 : found->second.number;
}

const Error* ControlNode::settled_failure(GroupId group) const {
  return settles_ns(group) == 0 ? failure(group) : nullptr;
}

std::int64_t ControlNode::settles_ns(GroupId group) const {
  const auto found = failures_.find(group);
  const bool is_open = found != failures_.end() && found->second.settles_ns > world_.now_ns();
  return is_open ? found->second.settles_ns : 0;
}

bool ControlNode::is_retired(const MessageKey& key) const {
  if (epochs_->is_over(key.epoch)) return true;
  const auto newest = newest_epoch_.find(key.communicator);
  if (newest != newest_epoch_.end() && key.epoch < newest->second) return true;
  const GroupId group{key.communicator, key.epoch};
  return std::find(retired_.begin(), retired_.end(), group) != retired_.end();
}

std::vector<MessageKey> ControlNode::unclaimed() const {
  std::vector<MessageKey> out;
  for (const auto& mail : mail_) out.push_back(mail.first.first);
  return out;
}

void ControlNode::open_group(GroupId group) {
  epochs_->open(group.epoch);
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
  failures_.erase(group);
  epochs_->close(group.epoch);
  retired_.push_back(group);
  if (retired_.size() > max_retired) retired_.pop_front();
}

}  // namespace unisono::comm