#include "transport/ofi/inbox.h"

#include "base/error.h"
#include "base/try.h"

namespace unisono::transport::ofi {

Status Inbox::arrive(const Immediate& immediate) {
  const auto distance =
      static_cast<std::uint8_t>(immediate.sequence - static_cast<std::uint8_t>(next_));
  return keep(distance, {.is_there = true,
                         .is_total = false,
                         .is_in_place = immediate.is_in_place,
                         .has_signal = immediate.increment > 0,
                         .index = immediate.index,
                         .value = immediate.increment});
}

Status Inbox::arrive(const Note& value) {
  return keep(value.sequence - next_, {.is_there = true,
                                       .is_total = true,
                                       .is_in_place = false,
                                       .has_signal = true,
                                       .index = value.index,
                                       .value = value.value});
}

Status Inbox::keep(std::uint64_t distance, const Arrived& what) {
  Status status = put_in_order(distance, what);
  is_whole_ = is_whole_ && status.ok();
  return status;
}

Status Inbox::put_in_order(std::uint64_t distance, const Arrived& what) {
  Arrived& place = arrived_[(next_ + distance) % window];
  if (distance >= window || place.is_there) [[unlikely]]
    return peer_error(peer_, "rank ", peer_, " counts its writes wrong: ", next_,
                      " have arrived, and one that is ", distance, " ahead, of at most ",
                      window - 1);
  if (what.has_signal && what.index >= static_cast<std::uint32_t>(signal_count_)) [[unlikely]]
    return peer_error(peer_, "rank ", peer_, " stored to signal ", what.index, "; there are ",
                      signal_count_);
  place = what;
  for (Arrived* first = &arrived_[next_ % window]; first->is_there;
       first = &arrived_[next_ % window]) {
    if (first->has_signal) UNISONO_TRY(store(*first));
    first->is_there = false;
    in_place_ += first->is_in_place ? 1 : 0;
    ++next_;
  }
  return {};
}

Status Inbox::store(const Arrived& what) {
  std::atomic<std::uint64_t>& signal = signals_[what.index];
  // Relaxed: nobody else stores to it.
  const std::uint64_t before = signal.load(std::memory_order_relaxed);
  const std::uint64_t after = what.is_total ? what.value : before + what.value;
  if (after < before) [[unlikely]]
    return peer_error(peer_, "rank ", peer_, " stored ", after, " to signal ", what.index,
                      ", which was ", before, " before; signals only grow");
  // Release: a thread that acquires the value sees the bytes of all writes before it.
  signal.store(after, std::memory_order_release);
  return {};
}

}  // namespace unisono::transport::ofi
