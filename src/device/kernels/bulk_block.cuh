// How the thread blocks of a call in bulk copies (bulk.cuh) begin and end it.
//
// At the start each block posts to all others where they reach this rank's buffers. A post says,
// too, that this rank's buffers may be read and written (release, acquire: the kernels before it).
// At the end it tells all others that its copies are complete, and hears so from them: then nobody
// reads this rank's input nor writes its output any more (release, acquire: the copies).
#pragma once

#include <cstdint>

#include "device/kernels/address.cuh"
#include "device/kernels/lines.cuh"
#include "device/program.h"
#include "device/ptx/memory.cuh"
#include "device/sync/wait.cuh"

namespace unisono::device {
namespace {

// By rank, where this rank reaches the buffers.
struct BulkViews {
  std::uint64_t inputs[direct_max_ranks];
  std::uint64_t outputs[direct_max_ranks];
};

// A thread block's part in agreeing on a call and in its end.
struct BulkBlock {
  const BulkLaunch& launch;
  const Watch& watch;
  const Place& place;
  std::uint64_t call;  // of this block, from 1
  BulkViews& views;    // shared

  // A thread for each rank, by distance from this one.
  __device__ int distance() const { return static_cast<int>(threadIdx.x); }
  __device__ int peer() const { return rank_at(launch.lines, distance()); }
  __device__ bool is_peer() const { return distance() > 0 && distance() < launch.lines.ranks; }
  __device__ LinesRegion& region_of_peer() const {
    return *at_address<LinesRegion>(launch.lines.peers[distance()].out);
  }
  __device__ const LinesRegion& region() const {
    return *at_address<const LinesRegion>(launch.lines.peers[distance()].in);
  }
  __device__ void post(std::uint32_t (&at)[4], std::uint64_t view) const {
    const auto flag = static_cast<std::uint32_t>(call);
    ptx::store_relaxed_sys(reinterpret_cast<uint4*>(at), {static_cast<unsigned>(view), flag,
                                                          static_cast<unsigned>(view >> 32), flag});
  }
  __device__ bool await_post(const std::uint32_t (&at)[4], std::uint64_t& view) const;
  // False if a wait was given up; then whether all reach what they need.
  __device__ bool agree(bool& all_reach);
  __device__ void tell() const;
  __device__ bool await_ends() const;
};

__device__ bool BulkBlock::await_post(const std::uint32_t (&at)[4], std::uint64_t& view) const {
  const auto flag = static_cast<std::uint32_t>(call);
  uint4 post{};
  const auto has_posted = [&](std::uint64_t& seen) {
    post = ptx::load_relaxed_sys(reinterpret_cast<const uint4*>(at));
    seen = post.y;
    return post.y == flag && post.w == flag;
  };
  if (!wait_until(watch, place, {Failure::destination, peer(), 0, call}, has_posted)) return false;
  view = post.x | static_cast<std::uint64_t>(post.z) << 32;
  return true;
}

__device__ bool BulkBlock::agree(bool& all_reach) {
  bool goes_on = true;
  bool reaches = true;
  if (is_peer()) {
    // Release: what the kernels before stored into the input, and read in the output.
    ptx::fence_sys();
    post(region_of_peer().posts[blockIdx.x], launch.outputs[peer()]);
    post(region_of_peer().inputs[blockIdx.x], launch.inputs[peer()]);
    goes_on = await_post(region().posts[blockIdx.x], views.outputs[peer()]) &&
              await_post(region().inputs[blockIdx.x], views.inputs[peer()]);
    // Acquire: what the peer released with them.
    ptx::fence_sys();
    reaches = views.outputs[peer()] != 0;
  } else if (distance() == 0) {
    views.outputs[peer()] = launch.outputs[peer()];
    views.inputs[peer()] = launch.inputs[peer()];
    reaches = launch.outputs[peer()] != 0;
  }
  if (__syncthreads_or(goes_on ? 0 : 1) != 0) return false;
  all_reach = __syncthreads_or(reaches ? 0 : 1) == 0;
  return true;
}

__device__ void BulkBlock::tell() const {
  __syncthreads();
  // Release: the block's copies, which the warps have waited for, and the barrier has joined with
  // this thread, first.
  if (is_peer()) ptx::store_release_sys(&region_of_peer().ends[blockIdx.x], call);
}

__device__ bool BulkBlock::await_ends() const {
  if (!is_peer()) return true;
  const std::uint64_t* end = &region().ends[blockIdx.x];
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
