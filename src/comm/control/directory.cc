#include "comm/control/directory.h"

#include <algorithm>

#include "base/error.h"

namespace unisono::comm {
namespace {

// A question or an answer is lost with a link; then another way may be there later.
constexpr std::int64_t ask_again_ns = 2'000'000'000;
// Of children that have not come; who asks beyond that asks again.
constexpr std::size_t most_awaited = 4096;

}  // namespace

Directory::Directory(ControlNode& node, TreePlace place) : node_(node), place_(std::move(place)) {}

void Directory::send(int to, FrameKind kind, std::vector<std::byte> payload) {
  node_.spread({node_.job(), 0}, kind, payload, std::span(&to, 1));
}

void Directory::seek_address(int rank) {
  std::int64_t& asked_ns = asked_ns_[rank];
  const std::int64_t now_ns = node_.world().now_ns();
  if (asked_ns != 0 && now_ns - asked_ns < ask_again_ns) return;
  asked_ns = now_ns;
  route({*Rank::among(rank, place_.ranks()), *Rank::among(place_.rank(), place_.ranks()), true});
}

sys::Task<Result<std::vector<std::byte>>> Directory::look_up(int rank, std::int64_t deadline_ns) {
  const auto target = Rank::among(rank, place_.ranks());
  if (!target)
    co_return misuse("there is no rank ", rank, " to look up; ranks are 0 to ", place_.ranks() - 1);
  if (rank == place_.rank()) co_return own_record_;
  sys::World& world = node_.world();
  ++wanted_[rank];
  Status usable;
  while (!records_.contains(rank) && usable.ok()) {
    route({*target, *Rank::among(place_.rank(), place_.ranks()), false});
    const std::int64_t again_ns = world.now_ns() + ask_again_ns;
    while (!records_.contains(rank) && usable.ok() && world.now_ns() < again_ns) {
      sys::Wait wait(world.scheduler(), node_.changed(), std::min(deadline_ns, again_ns));
      const bool notified = co_await wait;
      usable = node_.check(rank, {node_.job(), 0});
      // The rank on the way may have died instead.
      const int next = place_.towards(rank);
      if (usable.ok() && node_.has_broken_off(next)) usable = node_.check(next, {node_.job(), 0});
      if (!notified && usable.ok() && world.now_ns() >= deadline_ns)
        usable = timeout_error(rank, "rank ", rank, " could not be looked up in time");
    }
  }
  const bool is_last = --wanted_[rank] == 0;
  if (is_last) wanted_.erase(rank);
  const auto found = records_.find(rank);
  if (found == records_.end()) co_return usable.take_error();
  std::vector<std::byte> record = found->second;
  if (is_last) records_.erase(found);
  co_return std::move(record);
}

bool Directory::on_frame(int peer, FrameKind kind, std::span<const std::byte> payload) {
  if (peer != place_.parent() && !place_.is_child(peer)) return false;
  if (kind == FrameKind::look_up) {
    const auto asked = decode_look_up(payload, place_.ranks());
    if (asked.ok()) route(*asked);
    return asked.ok();
  }
  const auto found = decode_found(payload, place_.ranks());
  if (!found.ok()) return false;
  take(*found);
  return true;
}

void Directory::route(const LookUp& look_up) {
  const int target = look_up.target.number();
  const bool is_known_here =
      look_up.is_address_only && place_.is_child(target) && node_.known_address(target) != nullptr;
  if (target == place_.rank() || is_known_here)
    answer(look_up);
  else if (look_up.is_address_only && place_.is_child(target) && !node_.has_link(target))
    await_child(target, look_up.asker.number());
  else
    send(place_.towards(target), FrameKind::look_up, encode(look_up));
}

void Directory::await_child(int child, int asker) {
  if (awaited_.size() < most_awaited) awaited_.emplace(child, asker);
}

void Directory::child_has_come(int child) {
  const auto is_for = [child](const auto& awaited) { return awaited.first == child; };
  for (auto next = std::ranges::find_if(awaited_, is_for); next != awaited_.end();
       next = std::ranges::find_if(awaited_, is_for)) {
    const int asker = next->second;
    awaited_.erase(next);
    answer({*Rank::among(child, place_.ranks()), *Rank::among(asker, place_.ranks()), true});
  }
}

void Directory::answer(const LookUp& look_up) {
  const bool is_own = look_up.target.number() == place_.rank();
  Found found{look_up, {}, {}};
  found.address = is_own ? node_.address().text() : *node_.known_address(look_up.target.number());
  if (is_own && !look_up.is_address_only) found.record = own_record_;
  take(found);
}

void Directory::take(const Found& found) {
  const int asker = found.asked.asker.number();
  if (asker != place_.rank()) {
    send(place_.towards(asker), FrameKind::found, encode(found));
    return;
  }
  const int target = found.asked.target.number();
  if (asked_ns_.erase(target) == 0 && !wanted_.contains(target)) return;
  if (!found.asked.is_address_only && wanted_.contains(target))
    records_[target].assign(found.record.begin(), found.record.end());
  node_.set_address(target, found.address);
}

}  // namespace unisono::comm
