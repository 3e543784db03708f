// Plans of one hop between all ranks in protocol LL. Every rank stores its data with their flags,
// the call's number and tag, to the others, and puts the data that it receives in place or adds
// them in the plan's order. In rooted collectives only the root, or every other rank, does either.
// A call has one latency and no credits. The two-shot all-reduce has a second hop: every rank adds
// its segment and stores the sum to the others in the same way.
//
// Calls alternate between two slots, which must not overwrite an unread message: in call n a rank
// may store to a peer once that peer's call n - 2 is over. Where every rank sends to every other, a
// rank knows that when it has the peer's data of call n - 1; with two shots, when it has a sum, to
// which all ranks have contributed. Where only some ranks send, the receivers signal by a word at
// the start of each call (`signals`), and the senders poll it before they store. The two kinds of
// calls have separate slots. Each thread block has its own part of a slot and counts its own calls,
// so that calls of any size can follow each other.
#pragma once

#include <cstdint>

#include "device/all_pairs.h"
#include "device/copy/local.cuh"
#include "device/kernel_list.h"
#include "device/kernels/address.cuh"
#include "device/kernels/data.cuh"
#include "device/ptx/grid.cuh"
#include "device/ptx/memory.cuh"
#include "device/reduce/units.cuh"
#include "device/sync/stamp.cuh"
#include "device/sync/wait.cuh"

namespace unisono::device {
namespace {

// A thread block on its way through a call. `most` ranks: the loops over peers are unrolled.
template <LlKind kind, int most, class Data>
struct LlBlock {
  static constexpr bool has_segments = kind == LlKind::two_shot;
  const LlLaunch& launch;
  Watch watch;
  Place place;
  std::uint64_t call;  // from 1
  std::uint64_t part;  // of a slot, this block's
  std::int64_t first;  // unit
  std::int64_t end;

  __device__ std::uint32_t flag() const { return static_cast<std::uint32_t>(call); }
  __device__ std::uint32_t second_flag() const { return flag() + launch.tag; }
  __device__ bool is_other(int peer) const { return peer < launch.ranks && peer != launch.own; }
  // Without a division, whose instructions would stand in loops that poll.
  __device__ int rank_of(int peer) const {
    const int rank = launch.first + peer;
    return rank < launch.ranks ? rank : rank - launch.ranks;
  }
  // Whether a rank copies its own part to itself.
  __device__ bool copies_locally(int peer) const {
    return kind == LlKind::take && peer == launch.own && launch.peers[peer].destination != 0;
  }
  // What is left of a peer's bytes from a unit on.
  __device__ std::int64_t bytes_from(int peer, std::int64_t unit) const {
    return launch.peers[peer].bytes - unit * static_cast<std::int64_t>(ll_unit_payload);
  }
  __device__ std::uint64_t load(int peer, std::int64_t unit) const {
    return Data::load_word(launch.arithmetic,
                           at_address<const Byte>(launch.peers[peer].source) +
                               unit * static_cast<std::int64_t>(ll_unit_payload),
                           bytes_from(peer, unit));
  }
  __device__ std::uint64_t scaled(std::uint64_t word) const {
    if constexpr (kind == LlKind::take) return word;
    uint4 input[1] = {unit_of(word, 0)};
    Data::template scale_loaded<1>(launch.arithmetic, input);
    return low_word(input[0]);
  }
  __device__ void store(int peer, std::int64_t unit, std::uint64_t word) const {
    Data::store_word(at_address<Byte>(launch.peers[peer].destination) +
                         unit * static_cast<std::int64_t>(ll_unit_payload),
                     word, bytes_from(peer, unit));
  }
  __device__ std::uint64_t packet_at(int hop, std::int64_t unit) const {
    return part + static_cast<std::uint64_t>(hop) * launch.block_bytes +
           static_cast<std::uint64_t>(unit - first) * sizeof(uint4);
  }
  __device__ uint4 arrived(int peer, int hop, std::int64_t unit) const {
    return ptx::load_relaxed_sys(
        at_address<const uint4>(launch.peers[peer].in + packet_at(hop, unit)));
  }
  __device__ uint4 packet_of(std::uint64_t word) const {
    return {static_cast<unsigned>(word), flag(), static_cast<unsigned>(word >> 32), second_flag()};
  }
  __device__ void send_to(int peer, int hop, std::int64_t unit, std::uint64_t word) const {
    ptx::store_relaxed_sys(at_address<uint4>(launch.peers[peer].out + packet_at(hop, unit)),
                           packet_of(word));
  }

  // This block's word before the slots of one direction.
  __device__ static std::uint64_t* greeting(std::uint64_t slots) {
    return at_address<std::uint64_t>(slots - ll_greetings_bytes) + blockIdx.x;
  }

  // The message of a peer that is awaited. Which rank that is, is computed when it is told.
  struct Missing {
    const LlBlock& block;
    int peer;
    int hop;
    __device__ operator Wanted() const {
      return {Failure::message, block.rank_of(peer), hop, block.call};
    }
  };

  // The data for all peers, or for each where sources differ.
  struct Outgoing {
    std::uint64_t words[most];
  };
  __device__ Outgoing load_outgoing(std::int64_t unit) const;
  __device__ bool greet() const;
  __device__ void send(Outgoing outgoing) const;
  // False if a wait was given up, here and below. Polls all missing peers at once, which costs one
  // more poll after the last arrival, not one for each peer.
  __device__ bool await(int hop, std::int64_t unit, uint4 (&packets)[most]) const;
  __device__ bool take() const;
  __device__ bool combine() const;
};

template <LlKind kind, int most, class Data>
__device__ __forceinline__ typename LlBlock<kind, most, Data>::Outgoing
LlBlock<kind, most, Data>::load_outgoing(std::int64_t unit) const {
  Outgoing outgoing{};
  if (unit >= end || launch.peers[launch.own].source == 0) return outgoing;
  if (launch.sources_differ == 0) {
    outgoing.words[0] = load(launch.own, unit);
    return outgoing;
  }
#pragma unroll
  for (int peer = 0; peer < most; ++peer)
    if (is_other(peer) || copies_locally(peer)) outgoing.words[peer] = load(peer, unit);
  return outgoing;
}

// Receivers signal the senders by a word, which the senders poll.
template <LlKind kind, int most, class Data>
__device__ __forceinline__ bool LlBlock<kind, most, Data>::greet() const {
  bool goes_on = true;
  const int peer = static_cast<int>(threadIdx.x);
  if (is_other(peer)) {
    if (launch.peers[peer].destination != 0)
      ptx::store_relaxed_sys(greeting(launch.peers[peer].out), call);
    if (launch.peers[peer].source != 0) {
      const std::uint64_t* theirs = greeting(launch.peers[peer].in);
      const auto has_begun = [&](std::uint64_t& seen) {
        seen = ptx::load_relaxed_sys(theirs);
        return seen + 1 >= call;
      };
      goes_on = wait_until(watch, place, {Failure::credit, rank_of(peer), 0, call - 1}, has_begun);
    }
  }
  return __syncthreads_or(goes_on ? 0 : 1) == 0;
}

template <LlKind kind, int most, class Data>
__device__ __forceinline__ void LlBlock<kind, most, Data>::send(Outgoing outgoing) const {
  if (launch.peers[launch.own].source == 0) return;
  for (std::int64_t unit = first + threadIdx.x; unit < end; unit += blockDim.x) {
    Outgoing now = outgoing;
    outgoing = load_outgoing(unit + blockDim.x);
    if (launch.sources_differ == 0) now.words[0] = scaled(now.words[0]);
#pragma unroll
    for (int peer = 0; peer < most; ++peer) {
      const std::uint64_t word = launch.sources_differ != 0 ? now.words[peer] : now.words[0];
      if (copies_locally(peer)) store(peer, unit, word);
      if (!is_other(peer) || launch.peers[peer].source == 0) continue;
      if (has_segments && bytes_from(peer, unit) <= 0) continue;
      send_to(peer, 0, unit, launch.sources_differ != 0 ? scaled(word) : word);
    }
  }
}

// `packets` begin with the call's flags where nothing is awaited.
template <LlKind kind, int most, class Data>
__device__ __forceinline__ bool LlBlock<kind, most, Data>::await(int hop, std::int64_t unit,
                                                                 uint4 (&packets)[most]) const {
  const auto is_here = [&](int peer) {
    return packets[peer].y == flag() && packets[peer].w == second_flag();
  };
  Missing missing{*this, -1, hop};
  // Relaxed: what is read carries its own flag.
  const auto have_arrived = [&](std::uint64_t& seen) {
#pragma unroll
    for (int peer = 0; peer < most; ++peer)
      if (!is_here(peer)) packets[peer] = arrived(peer, hop, unit);
    bool all_here = true;
#pragma unroll
    for (int peer = 0; peer < most; ++peer)
      if (!is_here(peer)) {
        all_here = false;
        seen = packets[peer].y;
        missing.peer = peer;
      }
    return all_here;
  };
  return wait_until(watch, place, missing, have_arrived);
}

// Receives the data of the last hop.
template <LlKind kind, int most, class Data>
__device__ __forceinline__ bool LlBlock<kind, most, Data>::take() const {
  for (std::int64_t unit = first + threadIdx.x; unit < end; unit += blockDim.x) {
    const auto comes = [&](int peer) {
      return is_other(peer) && launch.peers[peer].destination != 0 &&
             (!has_segments || bytes_from(peer, unit) > 0);
    };
    uint4 packets[most];
#pragma unroll
    for (int peer = 0; peer < most; ++peer)
      packets[peer] = {0, comes(peer) ? ~flag() : flag(), 0, second_flag()};
    if (!await(ll_hops(kind) - 1, unit, packets)) return false;
#pragma unroll
    for (int peer = 0; peer < most; ++peer)
      if (comes(peer)) store(peer, unit, low_word({packets[peer].x, packets[peer].z, 0, 0}));
  }
  return true;
}

template <LlKind kind, int most, class Data>
__device__ __forceinline__ bool LlBlock<kind, most, Data>::combine() const {
  // In a reduce only the root adds.
  if (launch.peers[launch.own].destination == 0) return true;
  for (std::int64_t unit = first + threadIdx.x; unit < end; unit += blockDim.x) {
    if (has_segments && bytes_from(launch.own, unit) <= 0) break;
    const std::uint64_t own = load(launch.own, unit);
    uint4 packets[most];
#pragma unroll
    for (int peer = 0; peer < most; ++peer)
      packets[peer] = {0, is_other(peer) ? ~flag() : flag(), 0, second_flag()};
    if (!await(0, unit, packets)) return false;
    uint4 sum[1] = {};
#pragma unroll
    for (int peer = 0; peer < most; ++peer) {
      if (peer >= launch.ranks) continue;
      const std::uint64_t word =
          peer == launch.own ? scaled(own) : low_word({packets[peer].x, packets[peer].z, 0, 0});
      if (peer == 0) {
        sum[0] = unit_of(word, 0);
        continue;
      }
      const uint4 value[1] = {unit_of(word, 0)};
      Data::template combine<1>(launch.arithmetic, sum, value);
    }
    store(launch.own, unit, low_word(sum[0]));
    if constexpr (has_segments) {
#pragma unroll
      for (int peer = 0; peer < most; ++peer)
        if (is_other(peer)) send_to(peer, 1, unit, low_word(sum[0]));
    }
  }
  return true;
}

template <LlKind kind, int most, class Data>
__device__ __forceinline__ void run_ll(const LlLaunch& launch) {
  constexpr auto hops = static_cast<std::uint64_t>(ll_hops(kind));
  auto* state = at_address<BlockState>(launch.states) + blockIdx.x;
  auto* stopped = at_address<std::uint32_t>(launch.states + sizeof(BlockState) * ll_max_blocks);
  const std::int64_t units = (launch.bytes + 7) / static_cast<std::int64_t>(ll_unit_payload);
  const std::int64_t first = blockIdx.x * static_cast<std::int64_t>(launch.block_units);
  const std::int64_t end = first + launch.block_units;
  LlBlock<kind, most, Data> block{launch,
                                  {launch.timeout_ns, at_address<Mailbox>(launch.mailbox), stopped},
                                  {launch.rank, static_cast<int>(blockIdx.x), 0, 0},
                                  0,
                                  0,
                                  first,
                                  end < units ? end : units};
  if (!has_peers<most>(launch)) return;
  ptx::wait_for_kernel_before();
  ptx::let_next_kernel_come();
  const auto outgoing = block.load_outgoing(first + threadIdx.x);
  // Behind it, and on their way at the same time.
  block.call = ptx::load_relaxed_sys(&state->launches) + 1;
  if (ptx::load_relaxed_sys(stopped) != 0) return;
  const std::uint64_t of_block = hops * launch.block_bytes;
  block.part = block.call % ll_slots * of_block * ll_max_blocks + blockIdx.x * of_block;
  if (kind != LlKind::two_shot && launch.signals != 0) {
    // Loaded while the senders poll.
    const std::uint64_t count = stamp_begin(launch.stamp);
    if (!block.greet()) return;
    keep_stamp_count(launch.stamp, count);
    block.send(outgoing);
  } else {
    block.send(outgoing);
    // Behind it, because nothing waits for it there.
    keep_stamp_count(launch.stamp, stamp_begin(launch.stamp));
  }
  // All know the call's number; what is given up now is never begun again.
  __syncthreads();
  if (threadIdx.x == 0) state->launches = block.call;
  const bool is_complete =
      (kind == LlKind::take || block.combine()) && (kind == LlKind::combine || block.take());
  stamp_end_of_block(launch.stamp, is_complete);
}

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses)
#define UNISONO_LL_KERNEL(family, data, most, ...)                                  \
  extern "C" __global__ void __launch_bounds__(threads_per_block, 1)                \
      unisono_##family##_##data##_##most(const __grid_constant__ LlLaunch launch) { \
    run_with<DataOf<DataKind::data>>(launch.arithmetic, [&](auto data_of_call) {    \
      run_ll<ll_kind(KernelFamily::family), most, decltype(data_of_call)>(launch);  \
    });                                                                             \
  }
// NOLINTEND(bugprone-macro-parentheses)
UNISONO_LL_KERNELS(UNISONO_LL_KERNEL)
#undef UNISONO_LL_KERNEL

}  // namespace unisono::device
