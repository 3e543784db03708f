// Groups of sends and receives: a thread block takes its pieces of one direction's messages, in
// their order, in protocol Simple. For a large message the receiver first posts the destination; a
// sender that has mapped it stores there, and signals once. Short messages use LL128
// (ll128_messages.cuh), each warp for itself.
#pragma once

#include <cstdint>

#include "device/copy/move.cuh"
#include "device/kernels/address.cuh"
#include "device/kernels/ll128_messages.cuh"
#include "device/link.h"
#include "device/ptx/grid.cuh"
#include "device/ptx/memory.cuh"
#include "device/sync/link.cuh"
#include "device/sync/stamp.cuh"
#include "device/transfers.h"

namespace unisono::device {
namespace {

struct Carrier {
  const Link& link;
  Watch watch;
  Place place;
  std::uint32_t slots;
  std::uint32_t slot_stride;
  bool sends;
  std::uint64_t number;      // messages on the link, before the next one
  std::uint64_t given_back;  // sends; known to thread 0 only
  std::uint64_t posts;       // posted on the link, or heeded, before the next one
  std::uint32_t tag;         // of the message

  __device__ Byte* slot(std::uint64_t base) const {
    const std::uint32_t index = static_cast<std::uint32_t>(number) & (slots - 1);
    return at_address<Byte>(base + std::uint64_t{index} * slot_stride);
  }
  __device__ bool wait();
  // That the message `number` is there, or back.
  __device__ void signal() const {
    if (sends)
      ptx::store_release_sys(arrived_at(link.out_arrived, slots, number - 1), flag_of(tag, number));
    else
      ptx::store_release_sys(at_address<std::uint64_t>(link.in_given_back), number);
  }
  // False if the launch is given up, here and below; the same for all threads.
  __device__ bool carry(Byte* data, std::int64_t bytes);
  // Where the sender puts it; 0: into slots.
  __device__ bool agree(const Transfer& transfer, std::uint64_t& destination);
  __device__ bool carry_zero_copy(const Transfer& transfer, std::uint64_t destination,
                                  std::int64_t first);
};

// By one thread: until the next message may be stored, or is there.
__device__ bool Carrier::wait() {
  if (link.is_ring())
    return sends ? wait_for_credit<true>(watch, place, link, slots, number, given_back)
                 : wait_for_arrival<true>(watch, place, link, slots, number, tag);
  return sends ? wait_for_credit<false>(watch, place, link, slots, number, given_back)
               : wait_for_arrival<false>(watch, place, link, slots, number, tag);
}

__device__ bool Carrier::carry(Byte* data, std::int64_t bytes) {
  bool goes_on = true;
  if (threadIdx.x == 0) goes_on = wait();
  if (__syncthreads_or(goes_on ? 0 : 1) != 0) return false;
  Piece piece{};
  piece.bytes = bytes;
  if (sends) {
    piece.local_in = data;
    piece.message_out = slot(link.out_slots);
  } else {
    piece.message_in = slot(link.in_slots);
    piece.local_out = data;
  }
  move_simple(Arithmetic{}, piece);
  __syncthreads();
  ++number;
  if (threadIdx.x == 0) {
    // Relaxed: the signal's release covers it.
    if (sends && link.is_ring())
      ptx::store_relaxed_sys(arrived_at(link.out_bytes, slots, number - 1),
                             static_cast<std::uint64_t>(bytes));
    // Release: the bytes that all threads stored, or their reads of the slot, come first; the
    // barrier makes it cover them.
    signal();
  }
  return true;
}

__device__ bool Carrier::agree(const Transfer& transfer, std::uint64_t& destination) {
  bool goes_on = true;
  if (sends) {
    if (threadIdx.x == 0) goes_on = wait_for_addresses(watch, place, link, posts, tag);
    if (__syncthreads_or(goes_on ? 0 : 1) != 0) return false;
    destination =
        ptx::load_relaxed_sys(at_address<const PeerAddresses>(link.out_addresses)->addresses);
  } else {
    destination = transfer.direct != 0 ? transfer.data : 0;
    if (threadIdx.x == 0) {
      ptx::store_relaxed_sys(at_address<PeerAddresses>(link.in_addresses)->addresses, destination);
      signal_addresses(link, tag, posts + 1);
    }
  }
  ++posts;
  return true;
}

// All pieces of this channel, as one message of the link that takes no slot.
__device__ bool Carrier::carry_zero_copy(const Transfer& transfer, std::uint64_t destination,
                                         std::int64_t first) {
  bool goes_on = true;
  if (sends) {
    const std::int64_t most = transfer.piece_bytes();
    const std::int64_t stride = transfer.channels * most;
    for (std::int64_t at = first; at < transfer.bytes; at += stride) {
      const std::int64_t left = transfer.bytes - at;
      Piece piece{};
      piece.bytes = left < most ? left : most;
      piece.local_in = at_address<const Byte>(transfer.data) + at;
      piece.message_out = at_address<Byte>(destination) + at;
      move_simple(Arithmetic{}, piece);
    }
  } else if (threadIdx.x == 0) {
    goes_on = wait_for_arrival<false>(watch, place, link, slots, number, tag);
  }
  if (__syncthreads_or(goes_on ? 0 : 1) != 0) return false;
  ++number;
  // Release: the bytes that all threads stored come first; the barrier makes it cover them.
  if (threadIdx.x == 0) signal();
  return true;
}

// Not in line, for its registers.
__device__ __noinline__ bool carry_in_ll128(Watch watch, Place place, TransferBlock block,
                                            Transfer transfer) {
  const Link link = *at_address<const Link>(block.lines);
  Ll128Carrier carrier{watch,
                       place,
                       link.peer,
                       block.sends != 0,
                       at_address<Ll128Messages>(link.in_slots),
                       at_address<Ll128Messages>(link.out_slots),
                       static_cast<int>(block.channel + threadIdx.x / 32 * block.channels),
                       static_cast<int>(threadIdx.x % 32),
                       false,
                       0,
                       0};
  if (!carrier.carry(transfer)) return false;
  carrier.end();
  return true;
}

template <int most>
__device__ void carry_messages(const MessagesLaunch<most>& launch) {
  const TransferBlock block = launch.blocks[blockIdx.x];
  ptx::wait_for_kernel_before();
  const Link link = block.link != 0 ? *at_address<const Link>(block.link) : Link{};
  auto* stopped = at_address<std::uint32_t>(launch.stopped);
  // Once given up, the counters of the two ends no longer agree.
  const std::uint64_t count = stamp_begin(launch.stamp);
  if (ptx::load_relaxed_sys(stopped) != 0) return;
  keep_stamp_count(launch.stamp, count);
  auto* counters = at_address<LinkCounters>(link.counters);
  Carrier carrier{link,
                  {launch.timeout_ns, at_address<Mailbox>(launch.mailbox), stopped},
                  {launch.rank, static_cast<int>(blockIdx.x), 0, 0},
                  launch.slots,
                  launch.slot_stride,
                  block.sends != 0,
                  0,
                  0,
                  0,
                  0};
  if (counters != nullptr) {
    carrier.number = carrier.sends ? counters->sent : counters->received;
    carrier.posts = carrier.sends ? counters->heeded : counters->posted;
    if (carrier.sends) carrier.given_back = known_given_back<true>(link, *counters);
  }
  for (int i = 0; i < block.transfers; ++i) {
    const Transfer transfer = launch.transfers[block.first_transfer + i];
    carrier.place.step = i;
    carrier.place.tile = 0;
    carrier.tag = transfer.tag;
    if (transfer.piece_lines == 0) {
      if (!carry_in_ll128(carrier.watch, carrier.place, block, transfer)) return;
      continue;
    }
    const std::int64_t most_bytes = transfer.piece_bytes();
    const std::int64_t stride = transfer.channels * most_bytes;
    const std::int64_t first = block.channel * most_bytes;
    if (block.channel >= transfer.channels || first >= transfer.bytes) continue;
    if (transfer.posts != 0) {
      std::uint64_t destination = 0;
      if (!carrier.agree(transfer, destination)) return;
      if (destination != 0) {
        if (!carrier.carry_zero_copy(transfer, destination, first)) return;
        continue;
      }
    }
    for (std::int64_t at = first; at < transfer.bytes; at += stride) {
      const std::int64_t left = transfer.bytes - at;
      const std::int64_t bytes = left < most_bytes ? left : most_bytes;
      if (!carrier.carry(at_address<Byte>(transfer.data) + at, bytes)) return;
      ++carrier.place.tile;
    }
  }
  if (threadIdx.x == 0 && counters != nullptr) {
    (block.sends != 0 ? counters->sent : counters->received) = carrier.number;
    (block.sends != 0 ? counters->heeded : counters->posted) = carrier.posts;
    if (carrier.sends && link.is_ring()) counters->given_back = carrier.given_back;
  }
  stamp_end_of_block(launch.stamp, true);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(threads_per_block, 1)
    unisono_messages_small(const __grid_constant__ MessagesLaunch<small_launch_transfers> launch) {
  carry_messages(launch);
}

extern "C" __global__ void __launch_bounds__(threads_per_block, 1)
    unisono_messages(const __grid_constant__ MessagesLaunch<max_transfers> launch) {
  carry_messages(launch);
}

}  // namespace unisono::device
