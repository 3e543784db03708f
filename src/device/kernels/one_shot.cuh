// The plan one_shot_all_reduce in protocol LL, by hand: every rank stores its data with their flags
// to all others, and adds what it gets in the order of ranks, as the plan does. One way, one wait,
// and no credits: whoever hears a peer in call n knows that the peer's call n - 1 is over, so that
// two slots in turn never meet an unread message. Each block has its own part of a slot and counts
// its own calls, so that calls of any size follow each other.
#pragma once

#include <cstdint>

#include "device/copy/local.cuh"
#include "device/kernels/address.cuh"
#include "device/program.h"
#include "device/ptx/memory.cuh"
#include "device/reduce/units.cuh"
#include "device/sync/wait.cuh"

namespace unisono::device {

__device__ __forceinline__ std::uint64_t load_own(const OneShotLaunch& launch, std::int64_t unit) {
  const std::int64_t at = unit * static_cast<std::int64_t>(ll_unit_payload);
  const std::uint64_t word =
      load_word(at_address<const Byte>(launch.input) + at, launch.bytes - at);
  if (launch.arithmetic.scales_input == 0) return word;
  return low_word(scale_any(launch.arithmetic, unit_of(word, 0)));
}

extern "C" __global__ void __launch_bounds__(threads_per_block, 1)
    unisono_one_shot(const __grid_constant__ OneShotLaunch launch) {
  auto* state = at_address<BlockState>(launch.states) + blockIdx.x;
  auto* stopped =
      at_address<std::uint32_t>(launch.states + sizeof(BlockState) * one_shot_max_blocks);
  const std::uint64_t call = state->launches + 1;
  if (ptx::load_relaxed_sys(stopped) != 0) return;
  const auto flag = static_cast<std::uint32_t>(call);
  const std::uint64_t part =
      call % one_shot_slots * one_shot_slot_bytes + blockIdx.x * one_shot_block_bytes;
  const std::int64_t units = (launch.bytes + 7) / static_cast<std::int64_t>(ll_unit_payload);
  const std::int64_t first = blockIdx.x * static_cast<std::int64_t>(launch.block_units);
  const std::int64_t wanted_end = first + launch.block_units;
  const std::int64_t end = wanted_end < units ? wanted_end : units;

  for (std::int64_t unit = first + threadIdx.x; unit < end; unit += threads_per_block) {
    const std::uint64_t own = load_own(launch, unit);
    const uint4 packet{static_cast<unsigned>(own), flag, static_cast<unsigned>(own >> 32), flag};
#pragma unroll
    for (int peer = 0; peer < one_shot_max_ranks; ++peer)
      if (peer < launch.ranks && peer != launch.rank)
        ptx::store_relaxed_sys(at_address<uint4>(launch.out[peer] + part) + (unit - first), packet);
  }

  const Watch watch{ptx::global_time_ns() + launch.timeout_ns, at_address<Mailbox>(launch.mailbox),
                    stopped};
  const Place place{launch.rank, static_cast<int>(blockIdx.x), 0, 0};
  bool complete = true;
  for (std::int64_t unit = first + threadIdx.x; unit < end && complete; unit += threads_per_block) {
    uint4 arrived[one_shot_max_ranks];
#pragma unroll
    for (int peer = 0; peer < one_shot_max_ranks; ++peer)
      if (peer < launch.ranks && peer != launch.rank)
        arrived[peer] =
            ptx::load_relaxed_sys(at_address<const uint4>(launch.in[peer] + part) + (unit - first));
    uint4 sum[1] = {};
#pragma unroll
    for (int peer = 0; peer < one_shot_max_ranks; ++peer) {
      if (peer >= launch.ranks) continue;
      uint4 value[1] = {};
      if (peer == launch.rank) {
        value[0] = unit_of(load_own(launch, unit), 0);
      } else {
        // Relaxed: what is read carries its own flag.
        const auto has_arrived = [&](std::uint64_t& seen) {
          if (arrived[peer].y == flag && arrived[peer].w == flag) return true;
          seen = arrived[peer].y;
          arrived[peer] = ptx::load_relaxed_sys(at_address<const uint4>(launch.in[peer] + part) +
                                                (unit - first));
          return false;
        };
        const Wanted wanted{Failure::message, peer, 0, call};
        complete = complete && wait_until(watch, place, wanted, has_arrived);
        value[0] = {arrived[peer].x, arrived[peer].z, 0, 0};
      }
      if (peer == 0)
        sum[0] = value[0];
      else
        combine_units<1>(launch.arithmetic, sum, value);
    }
    const std::int64_t at = unit * static_cast<std::int64_t>(ll_unit_payload);
    if (complete)
      store_word(at_address<Byte>(launch.output) + at, low_word(sum[0]), launch.bytes - at);
  }
  if (__syncthreads_or(complete ? 0 : 1) == 0 && threadIdx.x == 0) state->launches = call;
}

}  // namespace unisono::device
