// Large data pushed straight where they are wanted, in calls of one hop without sums (lines.cuh).
//
// Each rank first says where it wants what comes, in the sender's addresses, if the sender can
// reach it. Then it is stored there, by all blocks as one front through the data, and each block
// tells when its part is there. A block hears and tells for itself, and counts its own calls.
#pragma once

#include <cstdint>

#include "device/copy/move.cuh"
#include "device/kernels/address.cuh"
#include "device/program.h"
#include "device/ptx/memory.cuh"
#include "device/sync/wait.cuh"

namespace unisono::device {
namespace {

// By distance from this rank, in which order all is done.
__device__ __forceinline__ int rank_at(const LinesLaunch& launch, int distance) {
  const int rank = launch.rank + distance;
  return rank < launch.ranks ? rank : rank - launch.ranks;
}
__device__ __forceinline__ bool has(unsigned ranks, int rank) { return (ranks >> rank & 1U) != 0; }

// A thread block in a call that posts. Ranks as bits.
template <int most>
struct Straight {
  const LinesLaunch& launch;
  const Watch& watch;
  const Place& place;
  std::uint64_t call;    // of this block that posts, from 1
  std::uint64_t* views;  // shared: by rank, where what is sent there goes, 0: by slots
  unsigned sends;
  unsigned takes;

  __device__ const LinesRegion& region(int rank) const {
    return *at_address<const LinesRegion>(launch.peers[rank].in);
  }
  __device__ LinesRegion& region_of_peer(int rank) const {
    return *at_address<LinesRegion>(launch.peers[rank].out);
  }
  __device__ bool agree();
  __device__ void push() const;
  __device__ void push_rest(std::int64_t from) const;
  __device__ void tell() const;
  __device__ bool await_ends() const;
};

template <int most>
__device__ bool Straight<most>::agree() {
  const int peer = static_cast<int>(threadIdx.x);
  const auto flag = static_cast<std::uint32_t>(call);
  bool goes_on = true;
  if (peer < launch.ranks) views[peer] = peer == launch.rank ? launch.peers[peer].destination : 0;
  if (peer < launch.ranks && has(launch.takes, peer)) {
    const std::uint64_t view = launch.peers[peer].view;
    ptx::store_relaxed_sys(
        reinterpret_cast<uint4*>(region_of_peer(peer).posts[blockIdx.x]),
        {static_cast<unsigned>(view), flag, static_cast<unsigned>(view >> 32), flag});
  }
  if (peer < launch.ranks && has(launch.sends, peer)) {
    uint4 post{};
    const auto has_posted = [&](std::uint64_t& seen) {
      post = ptx::load_relaxed_sys(reinterpret_cast<const uint4*>(region(peer).posts[blockIdx.x]));
      seen = post.y;
      return post.y == flag && post.w == flag;
    };
    goes_on = wait_until(watch, place, {Failure::destination, peer, 0, call}, has_posted);
    views[peer] = post.x | static_cast<std::uint64_t>(post.z) << 32;
  }
  if (__syncthreads_or(goes_on ? 0 : 1) != 0) return false;
  sends = takes = 0;
  for (int rank = 0; rank < launch.ranks; ++rank) {
    if (has(launch.sends, rank) && views[rank] != 0) sends |= 1U << rank;
    if (has(launch.takes, rank) && launch.peers[rank].view != 0) takes |= 1U << rank;
  }
  return true;
}

// One front of all blocks through the data, to all ranks at once.
template <int most>
__device__ void Straight<most>::push() const {
  const unsigned goes = sends | launch.keeps;
  bool is_plain = is_aligned(at_address<Byte>(launch.peers[launch.rank].destination), unit_bytes);
  for (int rank = 0; rank < launch.ranks; ++rank)
    is_plain = is_plain && is_aligned(at_address<Byte>(launch.peers[rank].source), unit_bytes);
  const std::int64_t units = is_plain ? launch.longest / unit_bytes : 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t base = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       base < units; base += batch * stride) {
    uint4 value[batch];
    bool is_loaded = false;
#pragma unroll
    for (int distance = 0; distance < most; ++distance) {
      const int rank = rank_at(launch, distance);
      if (distance >= launch.ranks || !has(goes, rank)) continue;
      const auto* source = at_address<const uint4>(launch.peers[rank].source);
      auto* destination = at_address<uint4>(views[rank]);
      if (!is_loaded || launch.sources_differ != 0) {
#pragma unroll
        for (int i = 0; i < batch; ++i)
          if (base + i * stride < units) value[i] = source[base + i * stride];
      }
      is_loaded = true;
#pragma unroll
      for (int i = 0; i < batch; ++i)
        if (base + i * stride < units) destination[base + i * stride] = value[i];
    }
  }
  push_rest(units * static_cast<std::int64_t>(unit_bytes));
}

// At any alignment.
template <int most>
__device__ void Straight<most>::push_rest(std::int64_t from) const {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x * unit_bytes;
  const std::int64_t own =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * unit_bytes;
  for (int rank = 0; rank < launch.ranks; ++rank) {
    if (!has(sends | launch.keeps, rank)) continue;
    const auto* source = at_address<const Byte>(launch.peers[rank].source);
    auto* destination = at_address<Byte>(views[rank]);
    for (std::int64_t at = from + own; at < launch.longest; at += stride)
      store_unit(destination + at, load_unit(source + at, launch.longest - at),
                 launch.longest - at);
  }
}

template <int most>
__device__ void Straight<most>::tell() const {
  __syncthreads();
  const int peer = static_cast<int>(threadIdx.x);
  // Release: the block's stores, which the barrier has joined with this thread, first.
  if (peer < launch.ranks && has(sends, peer))
    ptx::store_release_sys(&region_of_peer(peer).ends[blockIdx.x], call);
}

template <int most>
__device__ bool Straight<most>::await_ends() const {
  const int peer = static_cast<int>(threadIdx.x);
  if (peer >= launch.ranks || !has(takes, peer)) return true;
  const std::uint64_t* end = &region(peer).ends[blockIdx.x];
  const auto has_ended = [&](std::uint64_t& seen) {
    seen = ptx::load_relaxed_sys(end);
    return seen >= call;
  };
  if (!wait_until(watch, place, {Failure::message, peer, 0, call}, has_ended)) return false;
  // Acquire: what the peer stored before it.
  ptx::load_acquire_sys(end);
  return true;
}

}  // namespace
}  // namespace unisono::device
