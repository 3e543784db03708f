// Short messages in LL128: a warp takes its groups of one direction's messages, in their order, and
// works with the warp of the same number at the other end alone. A line tells its own arrival; a
// sender waits only for slots, of which each warp has a few in turn.
#pragma once

#include <cstdint>

#include "device/all_pairs.h"
#include "device/copy/group.cuh"
#include "device/kernels/address.cuh"
#include "device/kernels/data.cuh"
#include "device/ptx/grid.cuh"
#include "device/ptx/memory.cuh"
#include "device/sync/stamp.cuh"
#include "device/sync/wait.cuh"
#include "device/transfers.h"

namespace unisono::device {
namespace {

struct Ll128Carrier {
  const Watch& watch;
  Place place;
  int peer;
  bool sends;
  Ll128Messages* in;   // own
  Ll128Messages* out;  // the peer's
  int warp;            // of the direction
  int lane;
  bool has_begun;
  std::uint64_t number;      // groups of this warp's, before the next one
  std::uint64_t given_back;  // sends

  __device__ std::uint64_t* counter() const { return &(sends ? in->sent : in->taken)[warp]; }
  __device__ Byte* lines(Ll128Messages* of) const {
    return reinterpret_cast<Byte*>(of + 1) +
           (static_cast<std::uint64_t>(warp) * ll128_messages_slots +
            number % ll128_messages_slots) *
               ll128_group_bytes;
  }
  // False if a wait was given up, here and below.
  __device__ bool begin();
  __device__ bool send(const Transfer& transfer);
  __device__ bool take(const Transfer& transfer);
  __device__ bool carry(const Transfer& transfer) {
    if (warp >= transfer.channels) return true;
    return sends ? send(transfer) : take(transfer);
  }
  __device__ void end() const {
    __syncwarp();
    if (has_begun && lane == 0) *counter() = number;
  }
};

__device__ __forceinline__ bool Ll128Carrier::begin() {
  if (has_begun) return true;
  has_begun = true;
  number = ptx::load_relaxed_sys(counter());
  if (sends) given_back = ptx::load_relaxed_sys(&in->given_back[warp]);
  // Once given up, the counters of the two ends no longer agree.
  return ptx::load_relaxed_sys(watch.stopped) == 0;
}

__device__ __forceinline__ bool Ll128Carrier::send(const Transfer& transfer) {
  constexpr auto payload = static_cast<std::int64_t>(ll128_group_payload);
  const auto* data = at_address<const Byte>(transfer.data);
  std::int64_t at = warp * payload;
  Share next = load_share<AnyData>({}, data + at, transfer.bytes - at, lane);
  if (!begin()) return false;  // its loads on their way at the same time
  while (at < transfer.bytes) {
    const Share share = next;
    at += transfer.channels * payload;
    if (at < transfer.bytes) next = load_share<AnyData>({}, data + at, transfer.bytes - at, lane);
    // Relaxed: the peer's loads of the slot were over when it told.
    const auto is_free = [&](std::uint64_t& seen) {
      if (number - given_back < ll128_messages_slots) return true;
      seen = given_back = ptx::load_relaxed_sys(&in->given_back[warp]);
      return number - given_back < ll128_messages_slots;
    };
    const Wanted wanted{Failure::credit, peer, 0, number + 1 - ll128_messages_slots};
    if (!wait_until_in_warp(watch, place, wanted, is_free)) return false;
    send_share(lines(out), lane, share, flag_of(transfer.tag, number + 1));
    ++number;
    ++place.tile;
  }
  return true;
}

__device__ __forceinline__ bool Ll128Carrier::take(const Transfer& transfer) {
  constexpr auto payload = static_cast<std::int64_t>(ll128_group_payload);
  auto* data = at_address<Byte>(transfer.data);
  if (!begin()) return false;
  for (std::int64_t at = warp * payload; at < transfer.bytes; at += transfer.channels * payload) {
    Share share;
    const std::uint64_t flag = flag_of(transfer.tag, number + 1);
    const auto has_come = [&](std::uint64_t& seen) {
      share = poll_ll128(lines(in), lane);
      seen = missing_number(share, flag);
      return !misses_flags(share, lane, flag);
    };
    if (!wait_until_in_warp(watch, place, {Failure::message, peer, 0, number + 1}, has_come))
      return false;
    ++number;
    if (lane == 0) ptx::store_relaxed_sys(&out->given_back[warp], number);
    drop_flags(share, lane);
    store_share<AnyData>(data + at, transfer.bytes - at, lane, share);
    ++place.tile;
  }
  return true;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(ll128_threads, 1)
    unisono_ll128_messages(const __grid_constant__ Ll128MessagesLaunch launch) {
  int way_at = 0;
  while (way_at + 1 < launch.way_count && launch.ways[way_at + 1].first_block <= blockIdx.x)
    ++way_at;
  const Ll128MessagesRoute way = launch.ways[way_at];
  ptx::wait_for_kernel_before();
  ptx::let_next_kernel_come();
  keep_stamp_count(launch.stamp, stamp_begin(launch.stamp));
  const Watch watch{launch.timeout_ns, at_address<Mailbox>(launch.mailbox),
                    at_address<std::uint32_t>(launch.stopped)};
  Ll128Carrier carrier{
      watch,
      {launch.rank, static_cast<int>(blockIdx.x), 0, 0},
      way.peer,
      way.sends != 0,
      at_address<Ll128Messages>(way.in),
      at_address<Ll128Messages>(way.out),
      static_cast<int>(blockIdx.x - way.first_block + threadIdx.x / 32 * way.blocks),
      static_cast<int>(threadIdx.x % 32),
      false,
      0,
      0};
  bool is_complete = true;
  for (int i = 0; i < way.transfers && is_complete; ++i) {
    carrier.place.step = i;
    carrier.place.tile = 0;
    is_complete = carrier.carry(launch.transfers[way.first_transfer + i]);
  }
  if (is_complete) carrier.end();
  stamp_end_of_block(launch.stamp, is_complete);
}

}  // namespace unisono::device
