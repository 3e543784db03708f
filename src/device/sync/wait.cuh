// Bounded waiting: every spin has a deadline and heeds the host's word to stop, and the first that
// is given up tells the host what it waited for.
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

// Calls look() until it says true; false if the wait was given up. `look` tells what it saw last.
// It polls relaxed: an acquire at each poll would empty the first-level cache each time, so a
// caller that needs one acquires once, after the wait.
template <class Look>
__device__ bool wait_until(const Watch& watch, const Place& place, const Wanted& wanted,
                           Look look) {
  std::uint64_t seen = 0;
  for (std::uint32_t polls = 1; !look(seen); ++polls) {
    if (polls % polls_between_looks != 0) continue;
    if (const std::uint32_t reason = reason_to_stop(watch)) {
      report(watch, reason, place, wanted, seen);
      return false;
    }
  }
  return true;
}

// The same by all threads of a warp: until look() is true in each of them. `wanted` is looked at
// when the wait is given up, in the first thread that still misses something.
template <class Look>
__device__ bool wait_until_in_warp(const Watch& watch, const Place& place, const Wanted& wanted,
                                   Look look) {
  constexpr unsigned all = 0xffffffffU;
  for (std::uint32_t polls = 1;; ++polls) {
    std::uint64_t seen = 0;
    const unsigned missing = __ballot_sync(all, !look(seen));
    if (missing == 0) return true;
    if (polls % polls_between_looks != 0) continue;
    const std::uint32_t reason = __reduce_max_sync(all, reason_to_stop(watch));
    if (reason == 0) continue;
    if (static_cast<int>(threadIdx.x % 32) == __ffs(static_cast<int>(missing)) - 1)
      report(watch, reason, place, wanted, seen);
    return false;
  }
}

}  // namespace unisono::device
