// Zero-copy: large data stored directly at their destination, in calls of one hop without sums
// (ll128_all_pairs.cuh).
//
// Each rank first posts where it wants what is sent to it, in the sender's addresses, if the sender
// has mapped it. Blocks then store it there, moving as one front through the data, and each block
// signals when its part is there. A block waits and signals for itself, and counts its own calls.
#pragma once

#include <cstdint>

#include "device/all_pairs.h"
#include "device/copy/move.cuh"
#include "device/kernels/address.cuh"
#include "device/ptx/memory.cuh"
#include "device/sync/wait.cuh"

namespace unisono::device {
namespace {

// By distance from this rank, in which order all is done.
__device__ __forceinline__ int rank_at(const Ll128Launch& launch, int distance) {
  const int rank = launch.rank + distance;
  return rank < launch.ranks ? rank : rank - launch.ranks;
}
__device__ __forceinline__ bool has(unsigned ranks, int rank) { return (ranks >> rank & 1U) != 0; }

// Tells the host that a peer has not mapped this rank's buffer, or cannot write its own directly.
__device__ __forceinline__ void tell_fallback(const Ll128Launch& launch) {
  if (blockIdx.x != 0 || threadIdx.x != 0 || launch.key == 0) return;
  // Relaxed: the host reads it once the launch has ended.
  ptx::store_relaxed_sys(
      &at_address<Mailbox>(launch.mailbox)->fallbacks[launch.key % most_fallbacks], launch.key);
}

// Thread blocks that keep, of two ranks: a copy inside the device moves 36 GB/s a block, and is to
// be through before 350 GB/s of stores are. Of more ranks there is less to keep for as many stores.
constexpr int keepers_of_two = 16;
constexpr int fewest_blocks_with_keepers = 64;

// A thread block in a call that posts. Ranks as bits.
struct ZeroCopy {
  const Ll128Launch& launch;
  const Watch& watch;
  const Place& place;
  std::uint64_t call;    // of this block that posts, from 1
  std::uint64_t* views;  // shared: by rank, where what is sent there goes, 0: by slots
  unsigned sends;
  unsigned receives;

  __device__ const Ll128Region& region(int rank) const {
    return *at_address<const Ll128Region>(launch.peers[rank].in);
  }
  __device__ Ll128Region& region_of_peer(int rank) const {
    return *at_address<Ll128Region>(launch.peers[rank].out);
  }
  // A link carries more where each block sends to one rank alone (4 H200, all-gather of 64 MiB: 341
  // GB/s, and 326 where each sends to all): in turn blocks serve the distances. Where they are too
  // few, or where ranks send to one only, every block does all.
  __device__ int distances() const { return launch.spreads != 0 ? launch.ranks - 1 : 1; }
  // The last blocks only keep, meanwhile: a copy inside the device behind the stores would take a
  // twentieth of the call. The same on all ranks, whether there is something to keep or not.
  __device__ int keepers() const {
    const bool has_keepers = launch.spreads != 0 && gridDim.x >= fewest_blocks_with_keepers;
    return has_keepers ? 2 * keepers_of_two / launch.ranks : 0;
  }
  __device__ int pushers() const { return static_cast<int>(gridDim.x) - keepers(); }
  __device__ bool serves(int from, int to) const {
    const int distance = (to - from + launch.ranks) % launch.ranks;
    const int block = static_cast<int>(blockIdx.x);
    return launch.spreads == 0 || (block < pushers() && distance - 1 == block % distances());
  }
  __device__ bool agree();
  __device__ void push() const;
  __device__ void keep() const;
  __device__ void move(int rank, std::uint64_t to, int block, int blocks) const;
  __device__ void signal() const;
  __device__ bool await_ends() const;
};

__device__ bool ZeroCopy::agree() {
  const int peer = static_cast<int>(threadIdx.x);
  const auto flag = static_cast<std::uint32_t>(call);
  const std::uint32_t second_flag = flag + launch.tag;
  bool goes_on = true;
  if (peer < launch.ranks && has(launch.receives, peer)) {
    const std::uint64_t view = launch.peers[peer].view;
    ptx::store_relaxed_sys(
        reinterpret_cast<uint4*>(region_of_peer(peer).zero_copy.posts[blockIdx.x]),
        {static_cast<unsigned>(view), flag, static_cast<unsigned>(view >> 32), second_flag});
  }
  if (peer < launch.ranks && has(launch.sends, peer)) {
    uint4 post{};
    const auto has_addresses_arrived = [&](std::uint64_t& seen) {
      post = ptx::load_relaxed_sys(
          reinterpret_cast<const uint4*>(region(peer).zero_copy.posts[blockIdx.x]));
      seen = post.y;
      return post.y == flag && post.w == second_flag;
    };
    goes_on =
        wait_until(watch, place, {Failure::destination, peer, 0, call}, has_addresses_arrived);
    views[peer] = post.x | static_cast<std::uint64_t>(post.z) << 32;
  }
  if (__syncthreads_or(goes_on ? 0 : 1) != 0) return false;
  sends = receives = 0;
  for (int rank = 0; rank < launch.ranks; ++rank) {
    if (has(launch.sends, rank) && views[rank] != 0) sends |= 1U << rank;
    if (has(launch.receives, rank) && launch.peers[rank].view != 0) receives |= 1U << rank;
  }
  return true;
}

// One of `blocks` blocks that go as one front through what a rank gets.
__device__ void ZeroCopy::move(int rank, std::uint64_t to, int block, int blocks) const {
  copy_in_front<batch>(at_address<const Byte>(launch.peers[rank].source), at_address<Byte>(to),
                       launch.longest, static_cast<std::int64_t>(block) * blockDim.x + threadIdx.x,
                       static_cast<std::int64_t>(blocks) * blockDim.x);
}

__device__ void ZeroCopy::push() const {
  const int block = static_cast<int>(blockIdx.x);
  const int same = (pushers() - block % distances() - 1) / distances() + 1;
  for (int distance = 1; distance < launch.ranks; ++distance) {
    const int rank = rank_at(launch, distance);
    if (has(sends, rank) && serves(launch.rank, rank))
      move(rank, views[rank], block / distances(), same);
  }
}

// What a rank gives itself.
__device__ void ZeroCopy::keep() const {
  const int block = static_cast<int>(blockIdx.x);
  const int keepers = this->keepers();
  if (keepers > 0 && block < pushers()) return;
  for (int rank = 0; rank < launch.ranks; ++rank)
    if (has(launch.local_copies, rank))
      move(rank, launch.peers[rank].destination, keepers > 0 ? block - pushers() : block,
           keepers > 0 ? keepers : static_cast<int>(gridDim.x));
}

__device__ void ZeroCopy::signal() const {
  __syncthreads();
  const int peer = static_cast<int>(threadIdx.x);
  // Release: the block's stores, which the barrier has joined with this thread, first.
  if (peer < launch.ranks && has(sends, peer) && serves(launch.rank, peer))
    ptx::store_release_sys(&region_of_peer(peer).zero_copy.ends[blockIdx.x], call);
}

__device__ bool ZeroCopy::await_ends() const {
  const int peer = static_cast<int>(threadIdx.x);
  if (peer >= launch.ranks || !has(receives, peer) || !serves(peer, launch.rank)) return true;
  const std::uint64_t* end = &region(peer).zero_copy.ends[blockIdx.x];
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
