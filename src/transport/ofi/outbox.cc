#include "transport/ofi/outbox.h"

#include <algorithm>

#include "transport/ofi/inbox.h"

namespace unisono::transport::ofi {
namespace {

// A put of many bytes is several writes, so that one that is given up has an end soon, and so that
// copies at both ends overlap.
constexpr std::size_t piece_bytes = std::size_t{1} << 20;
// Below Inbox::window, with room for values.
constexpr std::size_t most_outstanding = Inbox::window / 2;

constexpr std::byte nothing{};

}  // namespace

bool Outbox::merge(Signal signal) {
  for (auto put = waiting_.rbegin(); put != waiting_.rend(); ++put) {
    if (put->bytes > 0 || put->is_posted || put->owes_value) return false;
    if (put->signal.index != signal.index) continue;
    put->signal.value = signal.value;
    return true;
  }
  return false;
}

bool Outbox::add(const std::byte* source, std::size_t bytes, std::size_t offset, Signal signal) {
  if (bytes > 0 && with_bytes_ == most_waiting) return false;
  ++started_;
  if (bytes == 0 && (signal.index < 0 || merge(signal))) {
    // Completes with those before it.
    return true;
  }
  with_bytes_ += bytes > 0 ? 1 : 0;
  waiting_.push_back({.source = bytes > 0 ? source : &nothing,
                      .bytes = bytes,
                      .offset = offset,
                      .signal = signal,
                      .first = started_});
  return true;
}

void Outbox::drop() {
  while (waiting_.size() > first_unposted_) {
    Put& last = waiting_.back();
    if (last.outstanding > 0) {
      // Begun: what is under way completes it.
      last.bytes = last.posted_bytes;
      last.signal = {};
      last.owes_value = false;
      last.is_posted = true;
      first_unposted_ = waiting_.size();
      return;
    }
    with_bytes_ -= last.bytes > 0 ? 1 : 0;
    waiting_.pop_back();
  }
}

void Outbox::abandon() {
  waiting_.clear();
  with_bytes_ = first_unposted_ = outstanding_ = 0;
}

std::uint32_t Outbox::increment_of(const Signal& signal) const {
  if (signal.index < 0 || signal.index > static_cast<int>(Immediate::most_index)) return 0;
  const std::uint64_t grows = signal.value - told_[static_cast<std::size_t>(signal.index)];
  return grows <= Immediate::most_increment ? static_cast<std::uint32_t>(grows) : 0;
}

bool Outbox::next(const Facts& peer, fi_addr_t to, std::size_t most_write_bytes, Next& out) {
  if (first_unposted_ == waiting_.size() || outstanding_ >= most_outstanding) return false;
  const Put& put = waiting_[first_unposted_];
  out.put = put.first;
  const bool is_new = put.signal.index >= 0 &&
                      put.signal.value != told_[static_cast<std::size_t>(put.signal.index)];
  out.has_value = put.owes_value || (put.bytes == 0 && is_new && increment_of(put.signal) == 0);
  if (out.has_value) {
    out.value = {.number = peer.number,
                 .ticket = peer.ticket,
                 .sequence = sequence_,
                 .index = static_cast<std::uint32_t>(put.signal.index),
                 .value = put.signal.value};
    return true;
  }
  const std::size_t bytes = std::min({put.bytes - put.posted_bytes, piece_bytes, most_write_bytes});
  const bool is_last = put.posted_bytes + bytes == put.bytes;
  const std::uint32_t increment = is_last ? increment_of(put.signal) : 0;
  const Immediate immediate{
      .number = peer.number,
      .sequence = static_cast<std::uint8_t>(sequence_),
      .index = increment > 0 ? static_cast<std::uint32_t>(put.signal.index) : 0,
      .increment = increment};
  out.write = {.source = put.source + put.posted_bytes,
               .bytes = bytes,
               .to = to,
               .address = peer.memory_address + put.offset + put.posted_bytes,
               .key = peer.memory_key,
               .immediate = immediate.pack()};
  return true;
}

void Outbox::posted(const Next& what, bool completes) {
  Put& put = waiting_[first_unposted_];
  ++sequence_;
  if (!what.has_value) put.posted_bytes += what.write.bytes;
  if (completes) {
    ++put.outstanding;
    ++outstanding_;
  }
  if (put.posted_bytes < put.bytes) return;
  if (put.signal.index >= 0) {
    std::uint64_t& told = told_[static_cast<std::size_t>(put.signal.index)];
    const bool was_told = what.has_value || increment_of(put.signal) > 0;
    if (!was_told && told != put.signal.value) {
      put.owes_value = true;
      return;
    }
    told = put.signal.value;
  }
  put.is_posted = true;
  ++first_unposted_;
  forget_complete();
}

void Outbox::completed_write(std::uint64_t number) {
  const auto put = std::ranges::lower_bound(waiting_, number, {}, &Put::first);
  // One that was abandoned is not there.
  if (put == waiting_.end() || put->first != number) return;
  --outstanding_;
  --put->outstanding;
  forget_complete();
}

void Outbox::forget_complete() {
  while (!waiting_.empty() && waiting_.front().is_posted && waiting_.front().outstanding == 0) {
    with_bytes_ -= waiting_.front().bytes > 0 ? 1 : 0;
    waiting_.pop_front();
    --first_unposted_;
  }
}

}  // namespace unisono::transport::ofi
