// Plans of one hop between all ranks in protocol LL, by hand: every rank stores its data with their
// flags to the others, and takes what comes from them, or adds it in the plan's order. One way, one
// wait, and no credits.
//
// Two slots in turn must never meet an unread message: in call n a rank may store to a peer once
// that peer's call n - 2 is over. Where every rank sends to every other, whoever has taken a peer's
// data in call n - 1 knows. Where only some send, the takers tell by a word at the start of each
// call (`tells`), and the senders look at it before they store. The two kinds of calls have slots
// of their own. Each block has its own part of a slot and counts its own calls, so that calls of
// any size follow each other.
#pragma once

#include <cstdint>

#include "device/copy/local.cuh"
#include "device/kernels/address.cuh"
#include "device/program.h"
#include "device/ptx/memory.cuh"
#include "device/reduce/units.cuh"
#include "device/sync/wait.cuh"

namespace unisono::device {
namespace {

// A thread block on its way through a call. `most` ranks: the loops over ranks are unrolled, and a
// kernel that is cold takes longer to begin the longer it is.
template <int most>
struct Direct {
  const DirectLaunch& launch;
  Watch watch;
  Place place;
  std::uint64_t call;  // from 1
  std::uint64_t part;  // of a slot, this block's
  std::int64_t first;  // unit
  std::int64_t end;

  __device__ std::uint32_t flag() const { return static_cast<std::uint32_t>(call); }
  __device__ bool is_other(int peer) const { return peer < launch.ranks && peer != launch.rank; }
  __device__ std::uint64_t load(int peer, std::int64_t unit) const {
    const std::int64_t at = unit * static_cast<std::int64_t>(ll_unit_payload);
    const std::uint64_t word =
        load_word(at_address<const Byte>(launch.sources[peer]) + at, launch.bytes - at);
    if (launch.arithmetic.scales_input == 0) return word;
    return low_word(scale_any(launch.arithmetic, unit_of(word, 0)));
  }
  __device__ void store(int rank, std::int64_t unit, std::uint64_t word) const {
    const std::int64_t at = unit * static_cast<std::int64_t>(ll_unit_payload);
    store_word(at_address<Byte>(launch.destinations[rank]) + at, word, launch.bytes - at);
  }
  __device__ const uint4* arrived(int peer, std::int64_t unit) const {
    return at_address<const uint4>(launch.in[peer] + part) + (unit - first);
  }

  __device__ bool greet() const;
  __device__ void send() const;
  // False if a wait was given up, here and below.
  __device__ bool await(int peer, std::int64_t unit, uint4& packet) const;
  __device__ bool take() const;
  __device__ bool combine() const;
};

// The takers' word to the senders; the senders' look at it.
template <int most>
__device__ __forceinline__ bool Direct<most>::greet() const {
  bool goes_on = true;
  const int peer = static_cast<int>(threadIdx.x);
  if (is_other(peer)) {
    if (launch.destinations[peer] != 0)
      ptx::store_relaxed_sys(at_address<std::uint64_t>(launch.greetings_out[peer]) + blockIdx.x,
                             call);
    if (launch.sources[peer] != 0) {
      const auto* greeting =
          at_address<const std::uint64_t>(launch.greetings_in[peer]) + blockIdx.x;
      const auto has_begun = [&](std::uint64_t& seen) {
        seen = ptx::load_relaxed_sys(greeting);
        return seen + 1 >= call;
      };
      goes_on = wait_until(watch, place, {Failure::credit, peer, 0, call - 1}, has_begun);
    }
  }
  return __syncthreads_or(goes_on ? 0 : 1) == 0;
}

template <int most>
__device__ __forceinline__ void Direct<most>::send() const {
  if (launch.sources[launch.rank] == 0) return;
  for (std::int64_t unit = first + threadIdx.x; unit < end; unit += threads_per_block) {
    // Mostly all peers get the same.
    const std::uint64_t same = launch.sources_differ != 0 ? 0 : load(launch.rank, unit);
#pragma unroll
    for (int peer = 0; peer < most; ++peer) {
      if (!is_other(peer) || launch.sources[peer] == 0) continue;
      const std::uint64_t word = launch.sources_differ != 0 ? load(peer, unit) : same;
      const uint4 packet{static_cast<unsigned>(word), flag(), static_cast<unsigned>(word >> 32),
                         flag()};
      ptx::store_relaxed_sys(at_address<uint4>(launch.out[peer] + part) + (unit - first), packet);
    }
  }
}

template <int most>
__device__ __forceinline__ bool Direct<most>::await(int peer, std::int64_t unit,
                                                    uint4& packet) const {
  // Relaxed: what is read carries its own flag.
  const auto has_arrived = [&](std::uint64_t& seen) {
    if (packet.y == flag() && packet.w == flag()) return true;
    seen = packet.y;
    packet = ptx::load_relaxed_sys(arrived(peer, unit));
    return false;
  };
  return wait_until(watch, place, {Failure::message, peer, 0, call}, has_arrived);
}

template <int most>
__device__ __forceinline__ bool Direct<most>::take() const {
  bool complete = true;
  for (std::int64_t unit = first + threadIdx.x; unit < end && complete; unit += threads_per_block) {
    uint4 packets[most];
#pragma unroll
    for (int peer = 0; peer < most; ++peer)
      if (is_other(peer) && launch.destinations[peer] != 0)
        packets[peer] = ptx::load_relaxed_sys(arrived(peer, unit));
    if (launch.destinations[launch.rank] != 0) store(launch.rank, unit, load(launch.rank, unit));
#pragma unroll
    for (int peer = 0; peer < most; ++peer) {
      if (!is_other(peer) || launch.destinations[peer] == 0) continue;
      complete = complete && await(peer, unit, packets[peer]);
      if (complete) store(peer, unit, low_word({packets[peer].x, packets[peer].z, 0, 0}));
    }
  }
  return complete;
}

template <int most>
__device__ __forceinline__ bool Direct<most>::combine() const {
  bool complete = true;
  for (std::int64_t unit = first + threadIdx.x; unit < end && complete; unit += threads_per_block) {
    uint4 packets[most];
#pragma unroll
    for (int peer = 0; peer < most; ++peer)
      if (is_other(peer)) packets[peer] = ptx::load_relaxed_sys(arrived(peer, unit));
    uint4 sum[1] = {};
    // Two rounds: from the rank that the plan begins with, then those before it.
#pragma unroll
    for (int i = 0; i < 2 * most; ++i) {
      const int peer = i % most;
      const bool is_second_round = i >= most;
      if (peer >= launch.ranks || (peer < launch.first) != is_second_round) continue;
      uint4 value[1] = {};
      if (peer == launch.rank) {
        value[0] = unit_of(load(launch.rank, unit), 0);
      } else {
        complete = complete && await(peer, unit, packets[peer]);
        value[0] = {packets[peer].x, packets[peer].z, 0, 0};
      }
      if (peer == launch.first)
        sum[0] = value[0];
      else
        combine_units<1>(launch.arithmetic, sum, value);
    }
    if (complete) store(launch.rank, unit, low_word(sum[0]));
  }
  return complete;
}

template <int most, bool combines>
__device__ __forceinline__ void run_direct(const DirectLaunch& launch) {
  auto* state = at_address<BlockState>(launch.states) + blockIdx.x;
  auto* stopped = at_address<std::uint32_t>(launch.states + sizeof(BlockState) * direct_max_blocks);
  const std::uint64_t call = state->launches + 1;
  if (ptx::load_relaxed_sys(stopped) != 0) return;
  const std::int64_t units = (launch.bytes + 7) / static_cast<std::int64_t>(ll_unit_payload);
  const std::int64_t first = blockIdx.x * static_cast<std::int64_t>(launch.block_units);
  const std::int64_t wanted_end = first + launch.block_units;
  const std::uint64_t slot = call % direct_slots * launch.block_bytes * direct_max_blocks;
  const Direct<most> direct{
      launch,
      {ptx::global_time_ns() + launch.timeout_ns, at_address<Mailbox>(launch.mailbox), stopped},
      {launch.rank, static_cast<int>(blockIdx.x), 0, 0},
      call,
      slot + blockIdx.x * std::uint64_t{launch.block_bytes},
      first,
      wanted_end < units ? wanted_end : units};
  bool complete = combines || launch.tells == 0 || direct.greet();
  if (complete) {
    direct.send();
    complete = combines ? direct.combine() : direct.take();
  }
  if (__syncthreads_or(complete ? 0 : 1) == 0 && threadIdx.x == 0) state->launches = call;
}

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses)
#define UNISONO_DIRECT_KERNEL(name, most, combines)                  \
  extern "C" __global__ void __launch_bounds__(threads_per_block, 1) \
      name(const __grid_constant__ DirectLaunch launch) {            \
    run_direct<most, combines>(launch);                              \
  }
// NOLINTEND(bugprone-macro-parentheses)
UNISONO_DIRECT_KERNEL(unisono_direct_take_2, 2, false)
UNISONO_DIRECT_KERNEL(unisono_direct_take_4, 4, false)
UNISONO_DIRECT_KERNEL(unisono_direct_take_8, 8, false)
UNISONO_DIRECT_KERNEL(unisono_direct_combine_2, 2, true)
UNISONO_DIRECT_KERNEL(unisono_direct_combine_4, 4, true)
UNISONO_DIRECT_KERNEL(unisono_direct_combine_8, 8, true)
#undef UNISONO_DIRECT_KERNEL

}  // namespace unisono::device
