// Bounded waiting: every spin has a deadline and heeds the host's word to stop. One that takes long
// tells the host what it waits for, and the first that is given up what it waited for.
#pragma once

#include <cstdint>

#include "device/common.h"
#include "device/ptx/convert.cuh"
#include "device/ptx/memory.cuh"

namespace unisono::device {

// What a waiting thread says of itself when it gives up.
struct Place {
  std::int32_t rank;
  std::int32_t block;
  std::int32_t step;
  std::int32_t tile;
};

struct Wanted {
  std::uint32_t kind;
  std::int32_t peer;
  std::int32_t channel;
  std::uint64_t expected;
};

// Ends all waiting of a launch. `stopped` is in device memory, one for each program: set once a
// wait was given up, so that the program's other blocks, and later replays of a graph, give up too.
// The deadline is a thread's own, from its first look at the clock on: one look more at the begin
// takes 0.1 us of every call.
struct Watch {
  std::int64_t timeout_ns;
  Mailbox* mailbox;
  std::uint32_t* stopped;
  mutable std::int64_t deadline_ns = 0;
};

// Looking at the host's memory takes some 2 us, at the clock some 20 ns: both only now and then.
inline constexpr std::uint32_t polls_between_looks = 2048;

// A Failure::Reason, or 0 to go on. Relaxed: nothing is read on the strength of either flag.
__device__ inline std::uint32_t reason_to_stop(const Watch& watch) {
  const std::int64_t now_ns = ptx::global_time_ns();
  if (watch.deadline_ns == 0) watch.deadline_ns = now_ns + watch.timeout_ns;
  if (now_ns > watch.deadline_ns) return Failure::timed_out;
  if (ptx::load_relaxed_sys(watch.stopped) != 0) return Failure::aborted;
  if (ptx::load_relaxed_sys(&watch.mailbox->stop) != 0) return Failure::aborted;
  return 0;
}

__device__ __noinline__ void report(Watch watch, std::uint32_t reason, Place place, Wanted wanted,
                                    std::uint64_t got) {
  if (atomicExch(watch.stopped, 1U) != 0) return;
  Failure& failure = watch.mailbox->failure;
  failure.kind = wanted.kind;
  failure.rank = place.rank;
  failure.peer = wanted.peer;
  failure.channel = wanted.channel;
  failure.block = place.block;
  failure.step = place.step;
  failure.tile = place.tile;
  failure.expected = wanted.expected;
  failure.got = got;
  // Release: the host reads the record once it has seen `state`.
  ptx::store_release_sys(&failure.state, reason);
}

// To the host's memory, and waits for no answer. Of a block's waiting threads the last one's word
// stays. Nobody takes it back when the wait is over: to look then for whether it was told takes
// 0.1 us of every call. It is told anew while it goes on, with another `look` each time.
__device__ __forceinline__ void tell(const Watch& watch, const Place& place, const Wanted& wanted,
                                     std::uint64_t got, std::uint32_t look) {
  if (place.block >= most_long_waits) return;
  const unsigned channel = static_cast<unsigned>(wanted.channel) & long_wait_most_channel;
  const unsigned tile = static_cast<unsigned>(place.tile) & long_wait_most_tile;
  const uint4 words{static_cast<unsigned>(wanted.expected), static_cast<unsigned>(got),
                    wanted.kind | channel << long_wait_channel_shift |
                        static_cast<unsigned>(wanted.peer) << long_wait_peer_shift,
                    (static_cast<unsigned>(place.step) & long_wait_most_step) |
                        tile << long_wait_tile_shift | look << long_wait_look_shift};
  ptx::store_relaxed_sys(reinterpret_cast<uint4*>(&watch.mailbox->waits[place.block]), words);
}

__device__ __forceinline__ std::uint32_t look_number(std::uint32_t reason, std::uint32_t polls) {
  return reason != 0 ? long_wait_given_up : polls / polls_between_looks % long_wait_given_up;
}

// Calls look() until it says true; false if the wait was given up. `look` tells what it saw last.
// It polls relaxed: an acquire at each poll would empty the first-level cache each time, so a
// caller that needs one acquires once, after the wait. `awaited` is a Wanted, or becomes one when
// something is told of it.
template <class Look, class Awaited = Wanted>
__device__ bool wait_until(const Watch& watch, const Place& place, const Awaited& awaited,
                           Look look) {
  std::uint64_t seen = 0;
  for (std::uint32_t polls = 1; !look(seen); ++polls) {
    if (polls % polls_between_looks != 0) continue;
    const std::uint32_t reason = reason_to_stop(watch);
    tell(watch, place, awaited, seen, look_number(reason, polls));
    if (reason == 0) continue;
    report(watch, reason, place, awaited, seen);
    return false;
  }
  return true;
}

// The same by all threads of a warp: until look() is true in each of them. `wanted` is looked at in
// the first thread that still misses something. A wait for the warp's own copies is told only when
// it is given up.
template <bool tells = true, class Look>
__device__ bool wait_until_in_warp(const Watch& watch, const Place& place, const Wanted& wanted,
                                   Look look) {
  constexpr unsigned all = 0xffffffffU;
  for (std::uint32_t polls = 1;; ++polls) {
    std::uint64_t seen = 0;
    const unsigned missing = __ballot_sync(all, !look(seen));
    if (missing == 0) return true;
    if (polls % polls_between_looks != 0) continue;
    const std::uint32_t reason = __reduce_max_sync(all, reason_to_stop(watch));
    const bool speaks = static_cast<int>(threadIdx.x % 32) == __ffs(static_cast<int>(missing)) - 1;
    if (tells && speaks) tell(watch, place, wanted, seen, look_number(reason, polls));
    if (reason == 0) continue;
    if (speaks) report(watch, reason, place, wanted, seen);
    return false;
  }
}

}  // namespace unisono::device
