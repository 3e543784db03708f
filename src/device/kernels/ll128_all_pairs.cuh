// Plans between all ranks in protocol LL128, for calls of any size, in one hop or two:
//   hop 0  A rank stores its data for other ranks to them. A receiver puts data in place, or, where
//          it has `reduce_sources`, adds them in the plan's order, its own data first.
//   hop 1  A rank forwards the sum, or the data of its one source, to ranks that put it in place.
// Each warp exchanges only with the warps of its number on the other devices. So no warp waits for
// a whole thread block, and some warps send while others wait.
//
// A warp moves a group at a time (group.cuh). A round is a group for each warp, and its number with
// the call's tag is the flag. A warp alternates between two slots. It stores a round's lines once
// the receivers have ended the round before the last; a rank knows that when it has a peer's data
// of the last round. Where some ranks only send, every rank signals all others at a round's end
// (`signals`), and the senders poll that. The two kinds of calls have separate slots. Warps count
// their rounds in device memory, so that calls of any size can follow each other.
//
// In a call that `posts`, most data are zero-copy (zero_copy.cuh), and only the rest use lines.
#pragma once

#include <cstdint>

#include "device/all_pairs.h"
#include "device/copy/group.cuh"
#include "device/kernel_list.h"
#include "device/kernels/address.cuh"
#include "device/kernels/data.cuh"
#include "device/kernels/zero_copy.cuh"
#include "device/ptx/grid.cuh"
#include "device/ptx/memory.cuh"
#include "device/reduce/units.cuh"
#include "device/sync/stamp.cuh"
#include "device/sync/wait.cuh"

namespace unisono::device {
namespace {

// A warp on its way through a call. `most` ranks: the loops over peers are unrolled. `by_distance`:
// so are the launch's peers and sets, else by rank; and what goes to all is loaded before the first
// store and the counters, which takes registers.
template <int most, class Data, bool by_distance>
struct Ll128Warp {
  const Ll128Launch& launch;
  Watch watch;
  Place place;
  int lane;
  int warp;  // of all that the slots are for
  // What uses slots, of the launch's.
  unsigned sends;
  unsigned local_copies;
  unsigned receives;
  Ll128Region* own;
  std::uint64_t round;   // from 1; once it has begun
  std::uint64_t credit;  // of the peer of this lane's number, seen last
  bool has_begun;

  __device__ int peer_at(int distance) const {
    return by_distance ? distance : rank_at(launch, distance);
  }
  __device__ int rank_of(int peer) const { return by_distance ? rank_at(launch, peer) : peer; }
  __device__ Share load(int peer, std::int64_t group) const;
  __device__ void store(int peer, std::int64_t group, const Share& share) const;
  __device__ std::uint64_t lines(int hop) const {
    const auto slot = (static_cast<std::uint64_t>(warp) * ll128_slots + round % ll128_slots);
    return sizeof(Ll128Region) +
           (slot * ll128_hops + static_cast<std::uint64_t>(hop)) * ll128_group_bytes;
  }
  __device__ void send_to(int peer, int hop, const Share& share) const;
  // False if a wait was given up, here and below.
  __device__ bool begin();
  __device__ bool await_credits();
  // By distance; from those of `peers`.
  __device__ bool await(int hop, unsigned peers, Share (&shares)[most]) const;
  __device__ bool send(std::int64_t group);
  __device__ bool combine(std::int64_t group) const;
  __device__ bool take(std::int64_t group) const;
  __device__ void signal() const;
  __device__ bool run(std::int64_t group) {
    if (!send(group)) return false;
    if (launch.reduce_sources != 0 && !combine(group)) return false;
    if (receives != 0 && !take(group)) return false;
    if (launch.signals != 0) signal();
    return true;
  }
};

template <int most, class Data, bool by_distance>
__device__ __forceinline__ Share
Ll128Warp<most, Data, by_distance>::load(int peer, std::int64_t group) const {
  const std::int64_t begin = group * static_cast<std::int64_t>(ll128_group_payload);
  return load_share<Data>(launch.arithmetic,
                          at_address<const Byte>(launch.peers[peer].source) + begin,
                          launch.peers[peer].bytes - begin, lane);
}

template <int most, class Data, bool by_distance>
__device__ __forceinline__ void Ll128Warp<most, Data, by_distance>::store(
    int peer, std::int64_t group, const Share& share) const {
  const std::int64_t begin = group * static_cast<std::int64_t>(ll128_group_payload);
  store_share<Data>(at_address<Byte>(launch.peers[peer].destination) + begin,
                    launch.peers[peer].bytes - begin, lane, share);
}

template <int most, class Data, bool by_distance>
__device__ __forceinline__ void Ll128Warp<most, Data, by_distance>::send_to(
    int peer, int hop, const Share& share) const {
  send_share(at_address<Byte>(launch.peers[peer].out + lines(hop)), lane, share,
             flag_of(launch.tag, round));
}

template <int most, class Data, bool by_distance>
__device__ __forceinline__ bool Ll128Warp<most, Data, by_distance>::begin() {
  has_begun = true;
  round = ptx::load_relaxed_sys(&own->rounds[warp]);
  if (launch.signals != 0 && lane < launch.ranks && has(sends | launch.forwards, lane))
    credit =
        ptx::load_relaxed_sys(&at_address<const Ll128Region>(launch.peers[lane].in)->credits[warp]);
  // Once given up, the counters of the two ends no longer agree.
  return ptx::load_relaxed_sys(&own->stopped) == 0;
}

template <int most, class Data, bool by_distance>
__device__ __forceinline__ bool Ll128Warp<most, Data, by_distance>::await_credits() {
  const bool looks = lane < launch.ranks && has(sends | launch.forwards, lane);
  const auto is_free = [&](std::uint64_t& seen) {
    if (!looks || credit + ll128_slots >= round) return true;
    seen = credit =
        ptx::load_relaxed_sys(&at_address<const Ll128Region>(launch.peers[lane].in)->credits[warp]);
    return credit + ll128_slots >= round;
  };
  return wait_until_in_warp(watch, place, {Failure::credit, rank_of(lane), 0, round - ll128_slots},
                            is_free);
}

template <int most, class Data, bool by_distance>
__device__ __forceinline__ void Ll128Warp<most, Data, by_distance>::signal() const {
  if (lane < launch.ranks && lane != peer_at(0))
    ptx::store_relaxed_sys(&at_address<Ll128Region>(launch.peers[lane].out)->credits[warp], round);
}

template <int most, class Data, bool by_distance>
__device__ __forceinline__ bool Ll128Warp<most, Data, by_distance>::await(
    int hop, unsigned peers, Share (&shares)[most]) const {
  unsigned missing = peers;  // the same for all lanes
  Wanted wanted{Failure::message, -1, hop, round};
  const std::uint64_t flag = flag_of(launch.tag, round);
  // Relaxed: a line is seen whole with its flag. Polls for all peers at once.
  const auto have_come = [&](std::uint64_t& seen) {
#pragma unroll
    for (int distance = 1; distance < most; ++distance) {
      const int peer = peer_at(distance);
      if (distance >= launch.ranks || !has(missing, peer)) continue;
      shares[distance] =
          poll_ll128(at_address<const Byte>(launch.peers[peer].in + lines(hop)), lane);
    }
    bool misses = false;
#pragma unroll
    for (int distance = 1; distance < most; ++distance) {
      const int peer = peer_at(distance);
      if (distance >= launch.ranks || !has(missing, peer)) continue;
      const bool waits = misses_flags(shares[distance], lane, flag);
      if (__any_sync(0xffffffffU, waits) == 0) {
        missing &= ~(1U << peer);
        drop_flags(shares[distance], lane);
      } else if (waits) {
        misses = true;
        seen = missing_number(shares[distance], flag);
        wanted.peer = rank_of(peer);
      }
    }
    return !misses;
  };
  return wait_until_in_warp(watch, place, wanted, have_come);
}

// The first loads come before the counters are needed.
template <int most, class Data, bool by_distance>
__device__ __forceinline__ bool Ll128Warp<most, Data, by_distance>::send(std::int64_t group) {
  Share shares[most];
  shares[0] = {};
#pragma unroll
  for (int distance = 0; distance < most; ++distance) {
    const int peer = peer_at(distance);
    if (launch.sources_differ == 0
            ? distance == 0 && (sends | local_copies) != 0
            : by_distance && distance < launch.ranks && has(sends | local_copies, peer))
      shares[distance] = load(peer, group);
  }
  if (by_distance && !has_begun && !begin()) return false;
  ++round;
  if (launch.signals != 0 && !await_credits()) return false;
  if (launch.sources_differ == 0)
    Data::template scale_loaded<2>(launch.arithmetic, shares[0].units);
#pragma unroll
  for (int distance = 0; distance < most; ++distance) {
    const int peer = peer_at(distance);
    if (distance >= launch.ranks || !has(sends | local_copies, peer)) continue;
    Share share = shares[0];
    if (launch.sources_differ != 0) {
      share = by_distance ? shares[distance] : load(peer, group);
      Data::template scale_loaded<2>(launch.arithmetic, share.units);
    }
    if (has(local_copies, peer)) store(peer, group, share);
    if (has(sends, peer)) send_to(peer, 0, share);
  }
  return true;
}

template <int most, class Data, bool by_distance>
__device__ __forceinline__ bool Ll128Warp<most, Data, by_distance>::combine(
    std::int64_t group) const {
  Share shares[most];
  shares[0] = {};
  const int own = peer_at(0);
  if (has(launch.reduce_sources, own)) shares[0] = load(own, group);
  if (!await(0, launch.reduce_sources & ~(1U << own), shares)) return false;
  Share sum = shares[0];
  Data::template scale_loaded<2>(launch.arithmetic, sum.units);
  bool is_begun = has(launch.reduce_sources, own);
#pragma unroll
  for (int distance = 1; distance < most; ++distance) {
    if (distance >= launch.ranks || !has(launch.reduce_sources, peer_at(distance))) continue;
    if (is_begun)
      Data::template combine<2>(launch.arithmetic, sum.units, shares[distance].units);
    else
      sum = shares[distance];
    is_begun = true;
  }
  if (launch.peers[own].destination != 0) store(own, group, sum);
#pragma unroll
  for (int distance = 1; distance < most; ++distance)
    if (distance < launch.ranks && has(launch.forwards, peer_at(distance)))
      send_to(peer_at(distance), 1, sum);
  return true;
}

template <int most, class Data, bool by_distance>
__device__ __forceinline__ bool Ll128Warp<most, Data, by_distance>::take(std::int64_t group) const {
  Share shares[most];
  if (!await(launch.hops - 1, receives, shares)) return false;
#pragma unroll
  for (int distance = 1; distance < most; ++distance)
    if (distance < launch.ranks && has(receives, peer_at(distance)))
      store(peer_at(distance), group, shares[distance]);
  return true;
}

// Runs the rounds of the first `blocks` thread blocks.
template <int most, class Data, bool by_distance>
__device__ __forceinline__ bool run_rounds(Ll128Warp<most, Data, by_distance>& self,
                                           int warp_of_block, int blocks) {
  constexpr auto payload = static_cast<std::int64_t>(ll128_group_payload);
  const std::int64_t groups = (self.launch.longest + payload - 1) / payload;
  const std::int64_t warps = static_cast<std::int64_t>(blocks) * (blockDim.x / 32);
  const bool is_empty =
      self.launch.reduce_sources == 0 && (self.sends | self.local_copies | self.receives) == 0;
  std::int64_t group = warp_of_block * static_cast<std::int64_t>(blocks) + blockIdx.x;
  if (is_empty) {
    // A warp without work counts rounds, too, as its peers do.
    if (group >= groups) return true;
    if (by_distance && !self.begin()) return false;
    self.round += static_cast<std::uint64_t>((groups - group + warps - 1) / warps);
    if (self.launch.signals != 0) self.signal();
    return true;
  }
  for (; group < groups; group += warps) {
    if (!self.run(group)) return false;
    ++self.place.tile;
  }
  return true;
}

// Moves the data that could not be zero-copy. Not inlined, to save registers.
template <int most>
__device__ __noinline__ bool run_rest(Ll128Warp<most, AnyData, false>& self, int warp_of_block) {
  return run_rounds(self, warp_of_block, static_cast<int>(gridDim.x));
}

template <int most, class Data, bool posts>
__device__ __forceinline__ void run_ll128(const Ll128Launch& launch) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp_of_block = static_cast<int>(threadIdx.x / 32);
  const int warp =
      static_cast<int>(blockIdx.x) * ll128_warps_of_block(launch.ranks) + warp_of_block;
  auto* own = at_address<Ll128Region>(launch.states);
  const Watch watch{launch.timeout_ns, at_address<Mailbox>(launch.mailbox), &own->stopped};
  const Place place{launch.rank, static_cast<int>(blockIdx.x), 0, 0};
  Ll128Warp<most, Data, !posts> self{
      launch,          watch, place, lane, warp, launch.sends, launch.local_copies,
      launch.receives, own,   0,     0,    false};
  if (!has_peers<most>(launch)) return;
  ptx::wait_for_kernel_before();
  ptx::let_next_kernel_come();
  const std::uint64_t count = stamp_begin(launch.stamp);
  if constexpr (posts) {
    if (!self.begin()) return;
    keep_stamp_count(launch.stamp, count);
    __shared__ std::uint64_t views[most];
    ZeroCopy zero_copy{launch, watch, place, own->zero_copy.calls[blockIdx.x] + 1, views, 0, 0};
    if (!zero_copy.agree()) return;
    if (zero_copy.sends != launch.sends) tell_fallback(launch);
    zero_copy.push();
    zero_copy.signal();
    zero_copy.keep();
    self.sends &= ~zero_copy.sends;
    self.receives &= ~zero_copy.receives;
    self.local_copies = 0;
    const bool complete = run_rest(self, warp_of_block) && zero_copy.await_ends();
    if (__syncthreads_or(complete ? 0 : 1) != 0) return;
    if (threadIdx.x == 0) own->zero_copy.calls[blockIdx.x] = zero_copy.call;
    if (lane == 0) own->rounds[warp] = self.round;
    if (threadIdx.x == 0) stamp_end(launch.stamp);
  } else {
    keep_stamp_count(launch.stamp, count);
    const bool is_complete = run_rounds(self, warp_of_block, static_cast<int>(gridDim.x));
    if (is_complete && self.has_begun && lane == 0) own->rounds[warp] = self.round;
    stamp_end_of_block(launch.stamp, is_complete);
  }
}

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses)
#define UNISONO_LL128_KERNEL(family, data, most, ...)                                  \
  extern "C" __global__ void __launch_bounds__(ll128_threads, 1)                       \
      unisono_##family##_##data##_##most(const __grid_constant__ Ll128Launch launch) { \
    constexpr bool posts = KernelFamily::family == KernelFamily::zero_copy;            \
    run_with<DataOf<DataKind::data>>(launch.arithmetic, [&](auto data_of_call) {       \
      run_ll128<most, decltype(data_of_call), posts>(launch);                          \
    });                                                                                \
  }
// NOLINTEND(bugprone-macro-parentheses)
UNISONO_LL128_KERNELS(UNISONO_LL128_KERNEL)
#undef UNISONO_LL128_KERNEL

}  // namespace unisono::device
