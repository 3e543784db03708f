// How a thread waits: it spins, then yields, then sleeps, longer and longer.
//
// Spinning answers in nanoseconds but takes the core from a rank that has work; so ranks that
// outnumber the cores yield at once, which lets each of them run in turn, and soon sleep: what
// yields for ever takes a share of the core from one that works. Sleeping starts at 20 us, about
// what waking costs, and doubles to 500 us, which bounds what a late message costs. Where more than
// 8 ranks share a core, the bound grows with them: waking up every 500 us, 256 ranks a core do
// nothing else.
//
// Ranks with a core each yield for some 20 ms before. On a virtual machine whose cores are all in
// use, the host gives the core of one that sleeps away and is milliseconds late to give it back;
// its peers wait, sleep, and are late in turn: 64 ranks on 64 such cores took 5 ms for a few bytes.
//
// Where an event ends the sleep (a message over a socket), sleeping costs a few tens of us at any
// length. So who may be woken spins for about as long only: a hop over a fast network is over by
// then, and for a slower one the core serves others, the kernel's side of the sockets among them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sys/world.h"

namespace unisono::comm {

class Backoff {
 public:
  // Polls without progress before it sleeps, where it does not spin.
  static constexpr int oversubscribed_yields = 20;

  static constexpr std::int64_t longest_sleep_ns = 500'000;
  // The same where so many ranks share a core.
  static std::int64_t longest_sleep_of(std::int64_t ranks_per_core) {
    return longest_sleep_ns * std::max<std::int64_t>(ranks_per_core, few_per_core) / few_per_core;
  }

  Backoff(sys::World& world, int spins, std::int64_t longest_ns = longest_sleep_ns)
      : world_(world), spins_(spins), longest_ns_(longest_ns) {}

  // The spins where an event can end the sleep, if there are `spins` where only shared memory is
  // awaited. A poll of sockets takes some 0.5 us.
  static int spins_before_events(int spins) { return spins / 64; }

  void reset() {
    polls_ = 0;
    sleep_ns_ = 0;
  }

  // One wait, after a poll that moved nothing.
  void step() {
    step([this](std::int64_t ns) { world_.sleep(ns); });
  }
  // sleep(ns) sleeps at most so long; is_woken: until an event, if one comes.
  template <class Sleep>
  void step(Sleep sleep, bool is_woken = false) {
    ++polls_;
    const int spins = is_woken ? spins_before_events(spins_) : spins_;
    const int yields = is_woken ? woken_yields : spins_ > 0 ? idle_yields : oversubscribed_yields;
    if (polls_ <= spins) {
      pause();
    } else if (polls_ <= spins + yields) {
      world_.yield();
    } else {
      sleep_ns_ = sleep_ns_ == 0 ? first_sleep_ns : sleep_ns_ * 2;
      if (sleep_ns_ > longest_ns_) sleep_ns_ = longest_ns_;
      sleep(sleep_ns_);
    }
  }

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

 private:
  static constexpr int idle_yields = 20'000;
  static constexpr int woken_yields = 20;
  static constexpr std::int64_t first_sleep_ns = 20'000;
  static constexpr std::int64_t few_per_core = 8;

  sys::World& world_;
  int spins_;
  std::int64_t longest_ns_;
  std::int64_t polls_ = 0;
  std::int64_t sleep_ns_ = 0;
};

}  // namespace unisono::comm
