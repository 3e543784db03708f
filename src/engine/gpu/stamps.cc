#include "engine/gpu/stamps.h"

#include <algorithm>
#include <atomic>
#include <optional>

namespace unisono::engine::gpu {
namespace {

constexpr std::uint64_t tags = std::uint64_t{1} << (64 - device::stamp_tag_shift);

struct Half {
  std::uint64_t tag = 0;
  std::uint64_t time = 0;
  std::uint64_t call = 0;
};

std::uint64_t load(const std::uint64_t& word) {
  // Acquire: whoever sees a launch's stamp sees what its kernel told before.
  return std::atomic_ref(const_cast<std::uint64_t&>(word)).load(std::memory_order_acquire);
}

// Nothing while it is being stored: then its words have different tags.
std::optional<Half> read_half(const device::LaunchStamp::Half& half) {
  const std::uint64_t time = load(half.time);
  const std::uint64_t call = load(half.call);
  if (time >> device::stamp_tag_shift != call >> device::stamp_tag_shift) return std::nullopt;
  return Half{.tag = call >> device::stamp_tag_shift,
              .time = time & device::stamp_mask,
              .call = call & device::stamp_mask};
}

}  // namespace

std::vector<StampReader::Seen> StampReader::read() {
  std::vector<Seen> out;
  if (mailbox_ == nullptr) return out;
  for (;;) {
    const device::LaunchStamp& slot = mailbox_->stamps[next_ % device::stamp_slots];
    const auto end = read_half(slot.end);
    const auto begin = read_half(slot.begin);
    const auto is_of_next = [&](const std::optional<Half>& half) {
      return half && half->tag == next_ % tags;
    };
    Seen seen{.number = next_};
    if (is_of_next(begin)) seen = {next_, begin->call, begin->time, 0};
    if (is_of_next(end)) {
      seen.call = end->call;
      seen.end_time = end->time;
      out.push_back(seen);
      ++next_;
      continue;
    }
    // A later launch's: so many were overwritten, and whole rounds of the slots lie between.
    const std::uint64_t ahead = begin ? (begin->tag - next_) % tags : 0;
    if (ahead == 0 || ahead >= tags / 2 || ahead % device::stamp_slots != 0) {
      if (is_of_next(begin)) out.push_back(seen);
      return out;
    }
    next_ += ahead - device::stamp_slots + 1;
  }
}

trace::Waiting::Kind waiting_kind_of(std::uint32_t kind) {
  switch (kind) {
    case device::Failure::message:
      return trace::Waiting::Kind::message;
    case device::Failure::credit:
      return trace::Waiting::Kind::credit;
    case device::Failure::destination:
      return trace::Waiting::Kind::destination;
    case device::Failure::dependency:
      return trace::Waiting::Kind::dependency;
    default:
      return trace::Waiting::Kind::nothing;
  }
}

std::vector<trace::Waiting> published_waits(const device::Mailbox& mailbox) {
  std::vector<trace::Waiting> out;
  for (int block = 0; block < device::published_blocks; ++block) {
    // A word that is stored just now is seen old or new, for people to read; so relaxed will do.
    const auto relaxed = [](const std::uint32_t& word) {
      return std::atomic_ref(const_cast<std::uint32_t&>(word)).load(std::memory_order_relaxed);
    };
    const device::PublishedWait& wait = mailbox.waits[block];
    const std::uint32_t what = relaxed(wait.what);
    const std::uint32_t where = relaxed(wait.where);
    const auto kind = waiting_kind_of(what & 0xfU);
    if (kind == trace::Waiting::Kind::nothing) continue;
    out.push_back({.kind = kind,
                   .peer = static_cast<std::int32_t>(what >> 4 & 0xfffU) - 1,
                   .channel = static_cast<std::int32_t>(what >> 16) - 1,
                   .thread_block = block,
                   .step = where & 0xffffU,
                   .tile = where >> 16,
                   .expected = relaxed(wait.expected),
                   .got = relaxed(wait.got)});
  }
  return out;
}

}  // namespace unisono::engine::gpu
