// How the thread blocks of a call by TMA bulk copies (tma_bulk.cuh) begin and end it.
//
// A rank whose buffers all others have mapped launches only the thread blocks that copy, so that
// other kernels have the rest of the device. A rank that cannot know this launches more, for LL128.
//
// At the start each block that copies posts to all other ranks the address at which they can access
// this rank's buffers, or that they cannot. The further blocks read the posts to the first one. So
// every block knows how many blocks each rank launched. A post also says that this rank's buffers
// may be read and written (release, acquire: the kernels before it).
// At the end a block signals all other ranks that its copies are complete, and waits for the same
// from them: then no rank reads this rank's input or writes its output (release, acquire: the
// copies).
#pragma once

#include <cstdint>

#include "device/all_pairs.h"
#include "device/kernels/address.cuh"
#include "device/kernels/ll128_all_pairs.cuh"
#include "device/ptx/memory.cuh"
#include "device/sync/wait.cuh"

namespace unisono::device {
namespace {

// By rank, where this rank reaches the buffers.
struct BulkPeerBuffers {
  std::uint64_t inputs[all_pairs_max_ranks];
  std::uint64_t outputs[all_pairs_max_ranks];
};

// What all ranks do: TMA bulk copies, or LL128, by the first `blocks` thread blocks.
struct BulkRouteMode {
  bool copies;
  int blocks;
};

// A thread block's part in agreeing on a call and in its end.
struct BulkBlock {
  const BulkLaunch& launch;
  const Watch& watch;
  const Place& place;
  std::uint64_t call;      // from 1
  BulkPeerBuffers& views;  // shared

  __device__ bool may_copy() const { return static_cast<int>(blockIdx.x) < launch.blocks; }
  // A thread for each rank, by distance from this one.
  __device__ int distance() const { return static_cast<int>(threadIdx.x); }
  __device__ bool is_rank() const { return distance() < launch.lines.ranks; }
  __device__ int peer() const { return rank_at(launch.lines, distance()); }
  __device__ bool is_peer() const { return distance() > 0 && is_rank(); }
  __device__ Ll128Region& region_of_peer() const {
    return *at_address<Ll128Region>(launch.lines.peers[distance()].out);
  }
  __device__ const Ll128Region& region() const {
    return *at_address<const Ll128Region>(launch.lines.peers[distance()].in);
  }
  __device__ void post(std::uint32_t (&at)[4], std::uint64_t view) const {
    const auto flag = static_cast<std::uint32_t>(call);
    ptx::store_relaxed_sys(reinterpret_cast<uint4*>(at),
                           {static_cast<unsigned>(view), flag, static_cast<unsigned>(view >> 32),
                            flag + launch.lines.tag});
  }
  __device__ bool await_address(const std::uint32_t (&at)[4], std::uint64_t& view) const;
  __device__ bool hear();
  // False if a wait was given up, here and below.
  __device__ bool agree(BulkRouteMode& way);
  __device__ void signal() const;
  __device__ bool await_ends() const;
};

__device__ bool BulkBlock::await_address(const std::uint32_t (&at)[4], std::uint64_t& view) const {
  const auto flag = static_cast<std::uint32_t>(call);
  uint4 post{};
  const auto has_addresses_arrived = [&](std::uint64_t& seen) {
    post = ptx::load_relaxed_sys(reinterpret_cast<const uint4*>(at));
    seen = post.y;
    return post.y == flag ? post.w == flag + launch.lines.tag
                          : static_cast<std::int32_t>(post.y - flag) > 0;
  };
  if (!wait_until(watch, place, {Failure::destination, peer(), 0, call}, has_addresses_arrived))
    return false;
  // A post of a later call means that the peer has ended this one without this block, which then
  // does not copy.
  view = post.y == flag ? post.x | static_cast<std::uint64_t>(post.z) << 32 : bulk_no_buffer;
  return true;
}

__device__ bool BulkBlock::hear() {
  if (!may_copy()) return await_address(region().bulk.posts[0], views.outputs[peer()]);
  // Release: what the kernels before stored into the input, and read in the output.
  ptx::fence_sys();
  post(region_of_peer().bulk.posts[blockIdx.x], launch.outputs[peer()]);
  post(region_of_peer().inputs[blockIdx.x], launch.inputs[peer()]);
  const bool have_come = await_address(region().bulk.posts[blockIdx.x], views.outputs[peer()]) &&
                         await_address(region().inputs[blockIdx.x], views.inputs[peer()]);
  // Acquire: what the peer released with them.
  ptx::fence_sys();
  return have_come;
}

__device__ bool BulkBlock::agree(BulkRouteMode& way) {
  bool goes_on = true;
  if (is_peer()) {
    goes_on = hear();
  } else if (is_rank()) {
    views.outputs[peer()] = launch.outputs[peer()];
    views.inputs[peer()] = launch.inputs[peer()];
  }
  if (__syncthreads_or(goes_on ? 0 : 1) != 0) return false;
  const bool is_reached = is_rank() && views.outputs[peer()] != 0;
  way.copies = __syncthreads_or(is_rank() && !is_reached ? 1 : 0) == 0;
  // By all blocks where all have them.
  way.blocks = __syncthreads_or(is_reached ? 1 : 0) != 0 ? launch.blocks : launch.all_blocks;
  return true;
}

__device__ void BulkBlock::signal() const {
  __syncthreads();
  // Release: the block's copies, which the warps have waited for, and the barrier has joined with
  // this thread, first.
  if (is_peer()) ptx::store_release_sys(&region_of_peer().bulk.ends[blockIdx.x], call);
}

__device__ bool BulkBlock::await_ends() const {
  if (!is_peer()) return true;
  const std::uint64_t* end = &region().bulk.ends[blockIdx.x];
  const auto has_ended = [&](std::uint64_t& seen) {
    seen = ptx::load_relaxed_sys(end);
    return seen >= call;
  };
  if (!wait_until(watch, place, {Failure::message, peer(), 0, call}, has_ended)) return false;
  // Acquire: what the peer stored before it.
  ptx::load_acquire_sys(end);
  return true;
}

}  // namespace
}  // namespace unisono::device
