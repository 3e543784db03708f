#include "comm/join/reception.h"

#include <algorithm>

#include "base/error.h"
#include "comm/control/directory.h"

namespace unisono::comm {
namespace {

constexpr std::int64_t tell_timeout_ns = 2'000'000'000;
// Connections that wait for the rank that they are to be sent on to. Others come again.
constexpr int most_waiting = 16;

}  // namespace

std::string format_ranks(std::span<const RankRange> ranges) {
  std::string out;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const RankRange& range = ranges[i];
    if (!out.empty()) out += ", ";
    if (out.size() > max_error_text_bytes / 2)
      return out + str("and more (", count_of(ranges), ")");
    append(out, range.first);
    if (range.size() > 1) out += str(range.size() == 2 ? ", " : "-", range.end - 1);
  }
  return out;
}

int count_of(std::span<const RankRange> ranges) {
  int count = 0;
  for (const RankRange& range : ranges) count += range.size();
  return count;
}

Reception::Reception(ControlNode& node, TreePlace place, std::function<void(const Error&)> report)
    : node_(node),
      place_(std::move(place)),
      report_(std::move(report)),
      has_come_(static_cast<std::size_t>(place_.subtree().size())) {
  has_come_[0] = true;
}

void Reception::all_have_come(const RankRange& child) {
  std::fill_n(has_come_.begin() + static_cast<std::ptrdiff_t>(index(child.first)), child.size(),
              true);
  node_.changed().notify_all();
}

std::vector<RankRange> Reception::missing(const RankRange& range) const {
  std::vector<RankRange> out;
  for (int rank = range.first; rank < range.end; ++rank) {
    if (has_come(rank)) continue;
    if (!out.empty() && out.back().end == rank)
      ++out.back().end;
    else
      out.push_back({rank, rank + 1});
  }
  return out;
}

Status Reception::admit(const Enrolment& enrolment, const std::string& from) const {
  const auto rank = Rank::among(enrolment.rank, place_.ranks());
  const auto blame = [&](Error error) {
    error.peer = rank ? rank->number() : -1;
    return error;
  };
  if (enrolment.world_size != static_cast<std::uint32_t>(place_.ranks()))
    return blame(misuse("the world size differs: rank ", enrolment.rank, " at ", from,
                        " was started with ", enrolment.world_size, " ranks, rank ", place_.rank(),
                        " with ", place_.ranks()));
  if (!rank || rank->number() == 0)
    return blame(misuse("a process at ", from, " enrolled as rank ", enrolment.rank,
                        rank ? ", which is the rendezvous itself: two processes have rank 0"
                             : str("; ranks are 0 to ", place_.ranks() - 1)));
  const int number = rank->number();
  if (number == place_.rank() || !place_.is_child(number))
    return blame(misuse("a process at ", from, " enrolled as rank ", number, " with rank ",
                        place_.rank(), ", which that rank never does"));
  if (const auto child = children_.find(number); child != children_.end())
    return blame(misuse("two processes joined as rank ", number, ": one listens at ", child->second,
                        ", the other at ", enrolment.address));
  return {};
}

sys::Task<void> Reception::serve(std::shared_ptr<Reception> self, std::unique_ptr<Channel> channel,
                                 Enrolment enrolment) {
  const auto rank = Rank::among(enrolment.rank, self->place_.ranks());
  const Status admitted = self->admit(enrolment, channel->peer_address().text());
  if (rank && self->place_.subtree().contains(rank->number()))
    self->has_come_[self->index(rank->number())] = true;
  ++self->being_told_;
  if (rank) self->told_to_enrol_.erase(rank->number());
  self->node_.changed().notify_all();
  if (!admitted.ok() || self->failure_) {
    if (!self->failure_) self->report_(admitted.error());
    co_await self->refuse(*channel);
  } else {
    self->children_.emplace(rank->number(), enrolment.address);
    co_await self->accept(std::move(channel), enrolment);
  }
  --self->being_told_;
  self->node_.changed().notify_all();
}

sys::Task<void> Reception::refuse(Channel& channel) {
  sys::World& world = node_.world();
  while (!failure_) {
    sys::Wait wait(world.scheduler(), node_.changed(), sys::no_deadline_ns);
    co_await wait;
  }
  const std::int64_t deadline_ns = world.now_ns() + tell_timeout_ns;
  const MessageKey no_key;
  const std::vector<std::byte> payload = encode_failure(*failure_);
  Status told = co_await channel.write(FrameKind::failure, no_key, payload, deadline_ns);
  // The other side closes once it has read; closing first could take the message back.
  if (told.ok()) co_await channel.wait_for_end(deadline_ns);
}

// A child stays. It waits here until this rank has been introduced itself.
sys::Task<void> Reception::accept(std::unique_ptr<Channel> channel, const Enrolment& enrolment) {
  sys::World& world = node_.world();
  while (node_.job() == 0 && !failure_) {
    sys::Wait wait(world.scheduler(), node_.changed(), sys::no_deadline_ns);
    co_await wait;
  }
  if (failure_) {
    co_await refuse(*channel);
    co_return;
  }
  const int child = static_cast<int>(enrolment.rank);
  const MessageKey no_key;
  const std::vector<std::byte> payload =
      encode(Introduction{node_.job(), channel->wrap(node_.job_key())});
  Status told = co_await channel->write(FrameKind::introduce, no_key, payload,
                                        world.now_ns() + tell_timeout_ns);
  if (told.ok()) {
    node_.set_address(child, enrolment.address);
    node_.add_link(child, std::move(channel));
    node_.directory().child_has_come(child);
  } else if (!failure_) {
    report_(peer_error(child, "rank ", child, " left before all ranks had connected (",
                       told.error().message, ")"));
  }
}

std::optional<int> Reception::next_for(const Visitor& visitor) const {
  const auto rank = Rank::among(visitor.rank, place_.ranks());
  if (!rank || visitor.world_size != static_cast<std::uint32_t>(place_.ranks()))
    return std::nullopt;
  const int number = rank->number();
  if (number == place_.rank() || place_.is_child(number)) return std::nullopt;
  if (place_.subtree().contains(number)) return place_.towards(number);
  if (place_.depth() != 1) return std::nullopt;
  const TreePlace root(0, place_.ranks(), place_.fan_out());
  if (number == 0 || root.is_child(number)) return std::nullopt;
  return root.towards(number);
}

const std::string* Reception::address_of(int next) {
  if (const auto child = children_.find(next); child != children_.end()) return &child->second;
  if (place_.is_child(next) || node_.job() == 0) return nullptr;
  node_.directory().seek_address(next);
  return node_.known_address(next);
}

sys::Task<Directions> Reception::direct(std::shared_ptr<Reception> self, Visitor visitor) {
  const std::optional<int> next = self->next_for(visitor);
  if (const auto rank = Rank::among(visitor.rank, self->place_.ranks());
      next && self->place_.subtree().contains(rank->number()))
    self->has_come_[self->index(rank->number())] = true;
  self->node_.changed().notify_all();
  Directions out{.kind = Directions::Kind::enrol};
  if (!next) co_return out;
  if (self->waiting_ < most_waiting) {
    ++self->waiting_;
    while (!self->failure_ && self->address_of(*next) == nullptr) {
      sys::Wait wait(self->node_.world().scheduler(), self->node_.changed(), sys::no_deadline_ns);
      co_await wait;
    }
    --self->waiting_;
  }
  if (self->failure_) {
    self->told_to_enrol_.insert(static_cast<int>(visitor.rank));
    co_return out;
  }
  out.kind = Directions::Kind::come_again;
  if (const std::string* address = self->address_of(*next); address != nullptr) {
    out.kind = Directions::Kind::next;
    out.rank = static_cast<std::uint32_t>(*next);
    out.address = *address;
  }
  co_return out;
}

void Reception::fail(const Error& error) {
  if (!failure_) failure_ = error;
  node_.changed().notify_all();
}

sys::Task<void> Reception::drain(std::int64_t deadline_ns) {
  // Ranks on their way shall hear it, too, unless it is that they did not come.
  const auto is_drained = [this] {
    return being_told_ == 0 && told_to_enrol_.empty() &&
           (failure_->timed_out || std::ranges::count(has_come_, false) == 0);
  };
  while (!is_drained()) {
    sys::Wait wait(node_.world().scheduler(), node_.changed(), deadline_ns);
    const bool notified = co_await wait;
    if (!notified) co_return;
  }
}

}  // namespace unisono::comm
