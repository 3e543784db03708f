// In the place of src/device/ptx/tma_bulk.cuh, on a host: copies are made later, in any order, and
// a store has read its shared memory when it is made.
#pragma once

#include <cstdint>
#include <deque>

namespace unisono::device::ptx {

inline constexpr bool has_bulk_copies = true;

// Of a barrier: bytes that are still to come, in two's complement, and behind them whether they
// were announced, and how many phases have ended.
struct TransferBarrier {
  std::int32_t bytes;
  std::uint16_t is_announced;
  std::uint16_t phases;
};
static_assert(sizeof(TransferBarrier) == sizeof(std::uint64_t));

inline TransferBarrier& transfers(std::uint64_t* barrier) {
  return *reinterpret_cast<TransferBarrier*>(barrier);
}
inline void end_phase_if_complete(TransferBarrier& barrier) {
  if (barrier.is_announced == 0 || barrier.bytes != 0) return;
  barrier.is_announced = 0;
  ++barrier.phases;
}

inline void make_transfer_barrier(std::uint64_t* barrier, unsigned) { *barrier = 0; }

inline void announce_bytes(std::uint64_t* barrier, unsigned bytes) {
  transfers(barrier).bytes += static_cast<std::int32_t>(bytes);
  transfers(barrier).is_announced = 1;
  end_phase_if_complete(transfers(barrier));
}

inline bool has_phase_ended(std::uint64_t* barrier, unsigned phase) {
  return transfers(barrier).phases % 2 != phase;
}

inline void load_tma(void* shared, const void* global, unsigned bytes, std::uint64_t* barrier) {
  emulated::copy_later(shared, global, bytes, [barrier, bytes] {
    transfers(barrier).bytes -= static_cast<std::int32_t>(bytes);
    end_phase_if_complete(transfers(barrier));
  });
}

inline void store_tma(void* global, const void* shared, unsigned bytes) {
  // A deque's elements stay where they are while others come and go at its ends.
  int& open = emulated::groups_of_stores().back();
  ++open;
  emulated::copy_later(global, const_cast<void*>(shared), bytes, [&open] { --open; });
}

inline void close_group_of_stores() { emulated::groups_of_stores().push_back(0); }

template <int groups>
void wait_until_stores_have_read() {
  auto& own = emulated::groups_of_stores();
  // The last is open.
  while (own.size() > groups + 1) {
    while (own.front() > 0) emulated::yield();
    own.pop_front();
  }
}
inline void wait_until_stores_are_complete() { wait_until_stores_have_read<0>(); }

inline void fence_bulk_copies() {}
inline void fence_bulk_copies_of_shared() {}

}  // namespace unisono::device::ptx
