// Plans of one hop between all ranks in protocol LL, by hand: every rank stores its data with their
// flags to the others, and takes what comes from them, or adds it in the plan's order; of those
// with a root, only it or all but it do either. One way, one wait, and no credits. And the
// all-reduce of two shots: every rank adds its segment and stores the sum to the others likewise.
//
// Two slots in turn must never meet an unread message: in call n a rank may store to a peer once
// that peer's call n - 2 is over. Where every rank sends to every other, whoever has taken a peer's
// data in call n - 1 knows; of two shots, whoever has taken a sum, to which all have given. Where
// only some send, the takers tell by a word at the start of each
// call (`tells`), and the senders look at it before they store. The two kinds of calls have slots
// of their own. Each block has its own part of a slot and counts its own calls, so that calls of
// any size follow each other.
#pragma once

#include <cstdint>

#include "device/copy/local.cuh"
#include "device/kernels/address.cuh"
#include "device/program.h"
#include "device/ptx/grid.cuh"
#include "device/ptx/memory.cuh"
#include "device/reduce/units.cuh"
#include "device/sync/wait.cuh"

namespace unisono::device {
namespace {

// A thread block on its way through a call. `most` ranks: the loops over ranks are unrolled, and a
// kernel that is cold takes longer to begin the longer it is.
template <DirectKind kind, int most>
struct DirectBlock {
  static constexpr bool has_segments = kind == DirectKind::two_shot;
  const DirectLaunch& launch;
  Watch watch;
  Place place;
  std::uint64_t call;  // from 1
  std::uint64_t part;  // of a slot, this block's
  std::int64_t first;  // unit
  std::int64_t end;

  __device__ std::uint32_t flag() const { return static_cast<std::uint32_t>(call); }
  __device__ bool is_other(int peer) const { return peer < launch.ranks && peer != launch.rank; }
  // Of what it sends, a rank keeps its own part.
  __device__ bool keeps(int rank) const {
    return kind == DirectKind::take && rank == launch.rank && launch.peers[rank].destination != 0;
  }
  // What is left of a rank's bytes from a unit on.
  __device__ std::int64_t bytes_from(int rank, std::int64_t unit) const {
    const std::int64_t at = unit * static_cast<std::int64_t>(ll_unit_payload);
    if (!has_segments) return launch.bytes - at;
    const std::int64_t of_segment = launch.all_bytes - rank * launch.bytes;
    return (of_segment < launch.bytes ? of_segment : launch.bytes) - at;
  }
  __device__ std::uint64_t load(int peer, std::int64_t unit) const {
    const auto* source = at_address<const Byte>(launch.peers[peer].source);
    const std::uint64_t word = load_word(source + unit * static_cast<std::int64_t>(ll_unit_payload),
                                         bytes_from(peer, unit));
    if (launch.arithmetic.scales_input == 0) return word;
    return low_word(scale_any(launch.arithmetic, unit_of(word, 0)));
  }
  __device__ void store(int rank, std::int64_t unit, std::uint64_t word) const {
    auto* destination = at_address<Byte>(launch.peers[rank].destination);
    store_word(destination + unit * static_cast<std::int64_t>(ll_unit_payload), word,
               bytes_from(rank, unit));
  }
  __device__ std::uint64_t packet_at(int hop, std::int64_t unit) const {
    return part + static_cast<std::uint64_t>(hop) * launch.block_bytes +
           static_cast<std::uint64_t>(unit - first) * sizeof(uint4);
  }
  __device__ uint4 arrived(int peer, int hop, std::int64_t unit) const {
    return ptx::load_relaxed_sys(
        at_address<const uint4>(launch.peers[peer].in + packet_at(hop, unit)));
  }
  __device__ void send_to(int peer, int hop, std::int64_t unit, std::uint64_t word) const {
    const uint4 packet{static_cast<unsigned>(word), flag(), static_cast<unsigned>(word >> 32),
                       flag()};
    ptx::store_relaxed_sys(at_address<uint4>(launch.peers[peer].out + packet_at(hop, unit)),
                           packet);
  }

  // What goes to all peers, or with sources that differ to each.
  struct Outgoing {
    std::uint64_t words[most];
  };
  __device__ Outgoing load_outgoing(std::int64_t unit) const;
  __device__ bool greet() const;
  __device__ void send(Outgoing outgoing) const;
  // False if a wait was given up, here and below. Polls for all peers at once, which costs one look
  // more after the last came, not one for each.
  template <class Comes>
  __device__ bool await(int hop, std::int64_t unit, Comes comes, uint4 (&packets)[most]) const;
  __device__ bool take() const;
  __device__ bool combine() const;
};

template <DirectKind kind, int most>
__device__ __forceinline__ typename DirectBlock<kind, most>::Outgoing
DirectBlock<kind, most>::load_outgoing(std::int64_t unit) const {
  Outgoing outgoing{};
  if (unit >= end || launch.peers[launch.rank].source == 0) return outgoing;
  if (launch.sources_differ == 0) {
    outgoing.words[0] = load(launch.rank, unit);
    return outgoing;
  }
#pragma unroll
  for (int peer = 0; peer < most; ++peer)
    if (is_other(peer) || keeps(peer)) outgoing.words[peer] = load(peer, unit);
  return outgoing;
}

// The takers' word to the senders; the senders' look at it.
template <DirectKind kind, int most>
__device__ __forceinline__ bool DirectBlock<kind, most>::greet() const {
  bool goes_on = true;
  const int peer = static_cast<int>(threadIdx.x);
  if (is_other(peer)) {
    if (launch.peers[peer].destination != 0)
      ptx::store_relaxed_sys(at_address<std::uint64_t>(launch.greetings_out[peer]) + blockIdx.x,
                             call);
    if (launch.peers[peer].source != 0) {
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

template <DirectKind kind, int most>
__device__ __forceinline__ void DirectBlock<kind, most>::send(Outgoing outgoing) const {
  if (launch.peers[launch.rank].source == 0) return;
  for (std::int64_t unit = first + threadIdx.x; unit < end; unit += blockDim.x) {
    const Outgoing now = outgoing;
    outgoing = load_outgoing(unit + blockDim.x);
#pragma unroll
    for (int peer = 0; peer < most; ++peer) {
      const std::uint64_t word = launch.sources_differ != 0 ? now.words[peer] : now.words[0];
      if (keeps(peer)) store(peer, unit, word);
      if (!is_other(peer) || launch.peers[peer].source == 0) continue;
      if (has_segments && bytes_from(peer, unit) <= 0) continue;
      send_to(peer, 0, unit, word);
    }
  }
}

template <DirectKind kind, int most>
template <class Comes>
__device__ __forceinline__ bool DirectBlock<kind, most>::await(int hop, std::int64_t unit,
                                                               Comes comes,
                                                               uint4 (&packets)[most]) const {
  const auto is_here = [&](int peer) {
    return packets[peer].y == flag() && packets[peer].w == flag();
  };
#pragma unroll
  for (int peer = 0; peer < most; ++peer) packets[peer] = {0, ~flag(), 0, ~flag()};
  Wanted wanted{Failure::message, -1, hop, call};
  // Relaxed: what is read carries its own flag.
  const auto have_arrived = [&](std::uint64_t& seen) {
#pragma unroll
    for (int peer = 0; peer < most; ++peer)
      if (comes(peer) && !is_here(peer)) packets[peer] = arrived(peer, hop, unit);
    bool all_here = true;
#pragma unroll
    for (int peer = 0; peer < most; ++peer)
      if (comes(peer) && !is_here(peer)) {
        all_here = false;
        seen = packets[peer].y;
        wanted.peer = peer;
      }
    return all_here;
  };
  return wait_until(watch, place, wanted, have_arrived);
}

// What comes in the last hop.
template <DirectKind kind, int most>
__device__ __forceinline__ bool DirectBlock<kind, most>::take() const {
  for (std::int64_t unit = first + threadIdx.x; unit < end; unit += blockDim.x) {
    const auto comes = [&](int peer) {
      return is_other(peer) && launch.peers[peer].destination != 0 &&
             (!has_segments || bytes_from(peer, unit) > 0);
    };
    uint4 packets[most];
    if (!await(direct_hops(kind) - 1, unit, comes, packets)) return false;
#pragma unroll
    for (int peer = 0; peer < most; ++peer)
      if (comes(peer)) store(peer, unit, low_word({packets[peer].x, packets[peer].z, 0, 0}));
  }
  return true;
}

template <DirectKind kind, int most>
__device__ __forceinline__ bool DirectBlock<kind, most>::combine() const {
  // Of a reduce, the root alone adds.
  if (launch.peers[launch.rank].destination == 0) return true;
  for (std::int64_t unit = first + threadIdx.x; unit < end; unit += blockDim.x) {
    if (has_segments && bytes_from(launch.rank, unit) <= 0) break;
    const std::uint64_t own = load(launch.rank, unit);
    uint4 packets[most];
    if (!await(0, unit, [&](int peer) { return is_other(peer); }, packets)) return false;
    uint4 sum[1] = {};
    // Two rounds: from the rank that the plan begins with, then those before it.
#pragma unroll
    for (int i = 0; i < 2 * most; ++i) {
      const int peer = i % most;
      const bool is_second_round = i >= most;
      if (peer >= launch.ranks || (peer < launch.first) != is_second_round) continue;
      uint4 value[1] = {{packets[peer].x, packets[peer].z, 0, 0}};
      if (peer == launch.rank) value[0] = unit_of(own, 0);
      if (peer == launch.first)
        sum[0] = value[0];
      else
        combine_units<1>(launch.arithmetic, sum, value);
    }
    store(launch.rank, unit, low_word(sum[0]));
    if constexpr (has_segments) {
#pragma unroll
      for (int peer = 0; peer < most; ++peer)
        if (is_other(peer)) send_to(peer, 1, unit, low_word(sum[0]));
    }
  }
  return true;
}

template <DirectKind kind, int most>
__device__ __forceinline__ void run_direct(const DirectLaunch& launch) {
  constexpr auto hops = static_cast<std::uint64_t>(direct_hops(kind));
  auto* state = at_address<BlockState>(launch.states) + blockIdx.x;
  auto* stopped = at_address<std::uint32_t>(launch.states + sizeof(BlockState) * direct_max_blocks);
  ptx::wait_for_kernel_before();
  ptx::let_next_kernel_come();
  const std::uint64_t call = state->launches + 1;
  const bool is_stopped = ptx::load_relaxed_sys(stopped) != 0;
  const std::int64_t units = (launch.bytes + 7) / static_cast<std::int64_t>(ll_unit_payload);
  const std::int64_t first = blockIdx.x * static_cast<std::int64_t>(launch.block_units);
  const std::int64_t wanted_end = first + launch.block_units;
  const std::uint64_t of_block = hops * launch.block_bytes;
  const std::uint64_t slot = call % direct_slots * of_block * direct_max_blocks;
  const DirectBlock<kind, most> block{
      launch,
      {ptx::global_time_ns() + launch.timeout_ns, at_address<Mailbox>(launch.mailbox), stopped},
      {launch.rank, static_cast<int>(blockIdx.x), 0, 0},
      call,
      slot + blockIdx.x * of_block,
      first,
      wanted_end < units ? wanted_end : units};
  // On its way while the states are.
  const auto outgoing = block.load_outgoing(first + threadIdx.x);
  if (is_stopped) return;
  bool complete = kind == DirectKind::two_shot || launch.tells == 0 || block.greet();
  if (complete) {
    block.send(outgoing);
    if constexpr (kind != DirectKind::take) complete = block.combine();
    if constexpr (kind != DirectKind::combine) complete = complete && block.take();
  }
  if (__syncthreads_or(complete ? 0 : 1) == 0 && threadIdx.x == 0) state->launches = call;
}

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses)
#define UNISONO_DIRECT_KERNEL(kind, most)                                           \
  extern "C" __global__ void __launch_bounds__(threads_per_block, 1)                \
      unisono_direct_##kind##_##most(const __grid_constant__ DirectLaunch launch) { \
    run_direct<DirectKind::kind, most>(launch);                                     \
  }
// NOLINTEND(bugprone-macro-parentheses)
UNISONO_DIRECT_KERNEL(take, 2)
UNISONO_DIRECT_KERNEL(take, 4)
UNISONO_DIRECT_KERNEL(take, 8)
UNISONO_DIRECT_KERNEL(combine, 2)
UNISONO_DIRECT_KERNEL(combine, 4)
UNISONO_DIRECT_KERNEL(combine, 8)
UNISONO_DIRECT_KERNEL(two_shot, 2)
UNISONO_DIRECT_KERNEL(two_shot, 4)
UNISONO_DIRECT_KERNEL(two_shot, 8)
#undef UNISONO_DIRECT_KERNEL

}  // namespace unisono::device
