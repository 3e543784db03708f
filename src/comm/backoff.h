// How a thread waits: it spins, then yields, then sleeps, longer and longer.
//
// Spinning answers in nanoseconds but takes the core from a rank that has work; so ranks that
// outnumber the cores yield almost at once, and soon sleep: a rank that yields for ever takes as
// much of a core as one that works. Sleeping starts at 20 us, about what waking costs, and doubles
// to 500 us, which bounds what a late message costs.
#pragma once

#include <sched.h>
#include <time.h>

#include <cstdint>

namespace unisono::comm {

class Backoff {
 public:
  explicit Backoff(int spins) : spins_(spins) {}

  void reset() {
    polls_ = 0;
    sleep_ns_ = 0;
  }

  // One wait, after a poll that moved nothing.
  void step() {
    step([](long sleep_ns) {
      const timespec duration{0, sleep_ns};
      nanosleep(&duration, nullptr);
    });
  }
  // sleep(ns) sleeps at most so long.
  template <class Sleep>
  void step(Sleep sleep) {
    ++polls_;
    if (polls_ <= spins_) {
      pause();
    } else if (polls_ <= spins_ + (spins_ > 0 ? yields : crowded_yields)) {
      sched_yield();
    } else {
      sleep_ns_ = sleep_ns_ == 0 ? first_sleep_ns : sleep_ns_ * 2;
      if (sleep_ns_ > longest_sleep_ns) sleep_ns_ = longest_sleep_ns;
      sleep(sleep_ns_);
    }
  }

  // Polls without progress so far: for what is looked at only now and then.
  std::int64_t idle_polls() const { return polls_; }
  bool sleeps() const { return sleep_ns_ > 0; }

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

 private:
  static constexpr int yields = 2000;
  static constexpr int crowded_yields = 20;
  static constexpr long first_sleep_ns = 20'000;
  static constexpr long longest_sleep_ns = 500'000;

  int spins_;
  std::int64_t polls_ = 0;
  long sleep_ns_ = 0;
};

}  // namespace unisono::comm
