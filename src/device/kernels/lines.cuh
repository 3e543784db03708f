// Plans between all ranks in protocol LL128, by hand and for calls of any size, in one hop or two:
//   hop 0  a rank stores to others what it has for them; what comes is put where it belongs, or,
//          where the rank `hears`, is added up in the plan's order, from its own data on
//   hop 1  the sum (or what was heard from one alone) goes on to others, which put it in place
// Warps work alone, each with its counterparts of the same number on the other devices: nobody
// waits for a whole block, and while some warps wait others send.
//
// A warp moves a group at a time: 60 units of 16 bytes, which are eight lines of 120 bytes and a
// flag. A round is a group for each warp; its number is the flag. A warp has two slots in turn, and
// stores a round's lines once their takers are through with the round before the last: whoever has
// something of a peer's of the last round knows that. Where some only send, every rank tells all
// others at a round's end (`tells`), and the senders look. The two kinds of calls have slots of
// their own. Warps count their rounds in device memory, so calls of any size follow each other.
//
// In a call that `posts` most of it goes straight (straight.cuh), and only the rest by lines.
#pragma once

#include <cstdint>

#include "device/copy/local.cuh"
#include "device/kernels/address.cuh"
#include "device/kernels/straight.cuh"
#include "device/program.h"
#include "device/ptx/grid.cuh"
#include "device/ptx/memory.cuh"
#include "device/reduce/units.cuh"
#include "device/sync/wait.cuh"

namespace unisono::device {
namespace {

// A thread's part of a group: units `lane` and, but for those that carry the flags, one of the 28
// after these.
struct Share {
  uint4 units[2];
};

// A warp on its way through a call. `most` ranks: the loops over ranks are unrolled.
template <int most>
struct LinesWarp {
  const LinesLaunch& launch;
  Watch watch;
  Place place;
  int lane;
  int warp;  // of all that the slots are for
  // What goes by slots, of the launch's.
  unsigned sends;
  unsigned keeps;
  unsigned takes;
  std::uint64_t round;  // from 1

  __device__ bool has_flag() const { return lane % 8 == 7; }
  __device__ std::int64_t offset(int unit) const {
    return static_cast<std::int64_t>(unit_bytes) * (unit == 0 ? lane : 32 + lane - lane / 8);
  }
  __device__ int peer_at(int distance) const { return rank_at(launch, distance); }
  __device__ Share load(int rank, std::int64_t group) const;
  __device__ void store(int rank, std::int64_t group, const Share& share) const;
  __device__ std::uint64_t lines(int hop) const {
    const auto slot = (static_cast<std::uint64_t>(warp) * lines_slots + round % lines_slots);
    return sizeof(LinesRegion) +
           (slot * lines_hops + static_cast<std::uint64_t>(hop)) * lines_group_bytes +
           static_cast<std::uint64_t>(lane) * unit_bytes;
  }
  __device__ void send_to(int rank, int hop, const Share& share) const;
  // False if a wait was given up, here and below.
  __device__ bool await_credits() const;
  // By distance; from those of `ranks`.
  __device__ bool await(int hop, unsigned ranks, Share (&shares)[most]) const;
  __device__ void send(std::int64_t group) const;
  __device__ bool combine(std::int64_t group) const;
  __device__ bool take(std::int64_t group) const;
  __device__ void tell() const;
  __device__ bool run(std::int64_t group) const {
    if (launch.tells != 0 && !await_credits()) return false;
    send(group);
    if (launch.hears != 0 && !combine(group)) return false;
    if (takes != 0 && !take(group)) return false;
    if (launch.tells != 0) tell();
    return true;
  }
};

template <int most>
__device__ __forceinline__ Share LinesWarp<most>::load(int rank, std::int64_t group) const {
  const LinesPeer& peer = launch.peers[rank];
  const std::int64_t begin = group * static_cast<std::int64_t>(lines_group_payload);
  const auto* source = at_address<const Byte>(peer.source) + begin;
  Share share{};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (i == 1 && has_flag()) continue;
    share.units[i] = load_unit(source + offset(i), peer.bytes - begin - offset(i));
    if (launch.arithmetic.scales_input != 0)
      share.units[i] = scale_any(launch.arithmetic, share.units[i]);
  }
  return share;
}

template <int most>
__device__ __forceinline__ void LinesWarp<most>::store(int rank, std::int64_t group,
                                                       const Share& share) const {
  const LinesPeer& peer = launch.peers[rank];
  const std::int64_t begin = group * static_cast<std::int64_t>(lines_group_payload);
  auto* destination = at_address<Byte>(peer.destination) + begin;
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (i == 0 || !has_flag())
      store_unit(destination + offset(i), share.units[i], peer.bytes - begin - offset(i));
}

// The unit of a thread that carries flags goes half and half into two lines.
template <int most>
__device__ __forceinline__ void LinesWarp<most>::send_to(int rank, int hop,
                                                         const Share& share) const {
  auto* out = at_address<Byte>(launch.peers[rank].out + lines(hop));
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint4 flagged =
        unit_of(i == 0 ? low_word(share.units[0]) : high_word(share.units[0]), round);
    ptx::store_relaxed_sys(reinterpret_cast<uint4*>(out + i * lines_group_bytes / 2),
                           has_flag() ? flagged : share.units[i]);
  }
}

template <int most>
__device__ __forceinline__ bool LinesWarp<most>::await_credits() const {
  const bool looks = lane < launch.ranks && has(sends | launch.forwards, lane);
  return wait_until_in_warp(
      watch, place, {Failure::credit, lane, 0, round - lines_slots}, [&](std::uint64_t& seen) {
        if (!looks) return true;
        seen = ptx::load_relaxed_sys(
            &at_address<const LinesRegion>(launch.peers[lane].in)->credits[warp]);
        return seen + lines_slots >= round;
      });
}

template <int most>
__device__ __forceinline__ void LinesWarp<most>::tell() const {
  if (lane < launch.ranks && lane != launch.rank)
    ptx::store_relaxed_sys(&at_address<LinesRegion>(launch.peers[lane].out)->credits[warp], round);
}

template <int most>
__device__ __forceinline__ bool LinesWarp<most>::await(int hop, unsigned ranks,
                                                       Share (&shares)[most]) const {
  unsigned missing = ranks;  // the same for all lanes
  Wanted wanted{Failure::message, -1, hop, round};
  // Relaxed: a line is seen whole with its flag. Polls for all peers at once.
  const auto have_come = [&](std::uint64_t& seen) {
#pragma unroll
    for (int distance = 1; distance < most; ++distance) {
      const int peer = peer_at(distance);
      if (distance >= launch.ranks || !has(missing, peer)) continue;
      const auto* in = at_address<const Byte>(launch.peers[peer].in + lines(hop));
#pragma unroll
      for (int i = 0; i < 2; ++i)
        shares[distance].units[i] =
            ptx::load_relaxed_sys(reinterpret_cast<const uint4*>(in + i * lines_group_bytes / 2));
    }
    bool misses = false;
#pragma unroll
    for (int distance = 1; distance < most; ++distance) {
      const int peer = peer_at(distance);
      if (distance >= launch.ranks || !has(missing, peer)) continue;
      uint4(&units)[2] = shares[distance].units;
      const bool waits =
          has_flag() && (high_word(units[0]) != round || high_word(units[1]) != round);
      if (__any_sync(0xffffffffU, waits) == 0) {
        missing &= ~(1U << peer);
        if (!has_flag()) continue;
        units[0] = unit_of(low_word(units[0]), low_word(units[1]));
        units[1] = {};
      } else if (waits) {
        misses = true;
        seen = high_word(units[0]);
        wanted.peer = peer;
      }
    }
    return !misses;
  };
  return wait_until_in_warp(watch, place, wanted, have_come);
}

template <int most>
__device__ __forceinline__ void LinesWarp<most>::send(std::int64_t group) const {
  Share share{};
  bool is_loaded = false;
#pragma unroll
  for (int distance = 0; distance < most; ++distance) {
    const int peer = peer_at(distance);
    if (distance >= launch.ranks || !has(sends | keeps, peer)) continue;
    if (!is_loaded || launch.sources_differ != 0) share = load(peer, group);
    is_loaded = true;
    if (has(keeps, peer)) store(peer, group, share);
    if (has(sends, peer)) send_to(peer, 0, share);
  }
}

template <int most>
__device__ __forceinline__ bool LinesWarp<most>::combine(std::int64_t group) const {
  Share shares[most];
  shares[0] = {};
  if (has(launch.hears, launch.rank)) shares[0] = load(launch.rank, group);
  if (!await(0, launch.hears & ~(1U << launch.rank), shares)) return false;
  Share sum = shares[0];
  bool is_begun = has(launch.hears, launch.rank);
#pragma unroll
  for (int distance = 1; distance < most; ++distance) {
    if (distance >= launch.ranks || !has(launch.hears, peer_at(distance))) continue;
    if (is_begun)
      combine_units<2>(launch.arithmetic, sum.units, shares[distance].units);
    else
      sum = shares[distance];
    is_begun = true;
  }
  if (launch.peers[launch.rank].destination != 0) store(launch.rank, group, sum);
#pragma unroll
  for (int distance = 1; distance < most; ++distance)
    if (distance < launch.ranks && has(launch.forwards, peer_at(distance)))
      send_to(peer_at(distance), 1, sum);
  return true;
}

template <int most>
__device__ __forceinline__ bool LinesWarp<most>::take(std::int64_t group) const {
  Share shares[most];
  if (!await(launch.hops - 1, takes, shares)) return false;
#pragma unroll
  for (int distance = 1; distance < most; ++distance)
    if (distance < launch.ranks && has(takes, peer_at(distance)))
      store(peer_at(distance), group, shares[distance]);
  return true;
}

template <int most>
__device__ __forceinline__ bool run_rounds(LinesWarp<most>& self, int warp_of_block) {
  constexpr auto payload = static_cast<std::int64_t>(lines_group_payload);
  const std::int64_t groups = (self.launch.longest + payload - 1) / payload;
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * (blockDim.x / 32);
  const bool is_empty = self.launch.hears == 0 && (self.sends | self.keeps | self.takes) == 0;
  for (std::int64_t group = warp_of_block * static_cast<std::int64_t>(gridDim.x) + blockIdx.x;
       group < groups; group += warps) {
    ++self.round;
    if (!is_empty && !self.run(group)) return false;
    ++self.place.tile;
  }
  // Who has nothing to do counts all the same, as its peers do.
  if (is_empty && self.launch.tells != 0) self.tell();
  return true;
}

template <int most, bool posts>
__device__ __forceinline__ void run_lines(const LinesLaunch& launch) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp_of_block = static_cast<int>(threadIdx.x / 32);
  const int warp =
      static_cast<int>(blockIdx.x) * lines_warps_of_block(launch.ranks) + warp_of_block;
  auto* own = at_address<LinesRegion>(launch.states);
  ptx::wait_for_kernel_before();
  ptx::let_next_kernel_come();
  // Once given up, the counters of the two ends no longer agree.
  const bool is_stopped = ptx::load_relaxed_sys(&own->stopped) != 0;
  const Watch watch{ptx::global_time_ns() + launch.timeout_ns, at_address<Mailbox>(launch.mailbox),
                    &own->stopped};
  const Place place{launch.rank, static_cast<int>(blockIdx.x), 0, 0};
  LinesWarp<most> self{launch,       watch,        place,
                       lane,         warp,         launch.sends,
                       launch.keeps, launch.takes, own->rounds[warp]};
  if (is_stopped) return;
  if constexpr (posts) {
    __shared__ std::uint64_t views[most];
    Straight straight{launch, watch, place, own->calls[blockIdx.x] + 1, views, 0, 0};
    if (!straight.agree()) return;
    straight.push();
    straight.tell();
    straight.keep();
    self.sends &= ~straight.sends;
    self.takes &= ~straight.takes;
    self.keeps = 0;
    const bool complete = run_rounds(self, warp_of_block) && straight.await_ends();
    if (__syncthreads_or(complete ? 0 : 1) != 0) return;
    if (threadIdx.x == 0) own->calls[blockIdx.x] = straight.call;
  } else if (!run_rounds(self, warp_of_block)) {
    return;
  }
  if (lane == 0) own->rounds[warp] = self.round;
}

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses)
#define UNISONO_LINES_KERNEL(name, most, posts)                             \
  extern "C" __global__ void __launch_bounds__(lines_threads, 1)            \
      unisono_##name##_##most(const __grid_constant__ LinesLaunch launch) { \
    run_lines<most, posts>(launch);                                         \
  }
// NOLINTEND(bugprone-macro-parentheses)
UNISONO_LINES_KERNEL(lines, 2, false)
UNISONO_LINES_KERNEL(lines, 4, false)
UNISONO_LINES_KERNEL(lines, 8, false)
UNISONO_LINES_KERNEL(straight, 2, true)
UNISONO_LINES_KERNEL(straight, 4, true)
UNISONO_LINES_KERNEL(straight, 8, true)
#undef UNISONO_LINES_KERNEL

}  // namespace unisono::device
