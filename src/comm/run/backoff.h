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
// length. So such a wait spins for about as long only, if at all (spin_choice.h), and does not
// yield: it sleeps at once for as long as it may, in one system call that finds the message, too.
#pragma once

#include <algorithm>
#include <cstdint>

#include "comm/run/spin_choice.h"
#include "sys/world.h"

namespace unisono::comm {

// A wait ends by one of these.
enum class WokenBy : std::uint8_t {
  time,    // nothing wakes the thread: it awaits what a rank of this host stores
  either,  // that, or an event
  event,   // an event alone
};

class Backoff {
 public:
  // Polls without progress before it sleeps, where it does not spin.
  static constexpr int oversubscribed_yields = 20;
  // Polls before a sleep for events: what the first one takes from the sockets, the second sees.
  static constexpr int polls_between_sleeps = 2;

  static constexpr std::int64_t longest_sleep_ns = 500'000;
  // The same where so many ranks share a core.
  static std::int64_t longest_sleep_of(std::int64_t ranks_per_core) {
    return longest_sleep_ns * std::max<std::int64_t>(ranks_per_core, few_per_core) / few_per_core;
  }

  // `choice` decides whether a wait for events spins.
  Backoff(sys::World& world, SpinChoice& choice, std::int64_t longest_ns = longest_sleep_ns)
      : world_(world), own_(0, false), choice_(choice), longest_ns_(longest_ns) {}
  Backoff(sys::World& world, int spins, std::int64_t longest_ns = longest_sleep_ns)
      : world_(world), own_(spins, false), choice_(own_), longest_ns_(longest_ns) {}
  Backoff(const Backoff&) = delete;
  Backoff& operator=(const Backoff&) = delete;

  void reset() {
    if (polls_ > 0 && woken_by_ != WokenBy::time && spins_ > 0 && polls_ <= spins_)
      choice_.came([this] { return world_.lost_turns(); });
    polls_ = 0;
    polls_since_sleep_ = 0;
    sleep_ns_ = 0;
  }

  // Whether the next poll should ask the system what has come: not where a sleep follows, which
  // finds it.
  bool looks() const {
    if (polls_ == 0) return choice_.spins_next();
    return woken_by_ == WokenBy::time ? SpinChoice::looks_for_others(polls_)
                                      : polls_ < spins_ + yields();
  }

  // One wait, after a poll that moved nothing.
  void step() {
    step([this](std::int64_t ns) { world_.sleep(ns); });
  }
  // sleep(ns) sleeps at most so long, or until an event.
  template <class Sleep>
  void step(Sleep sleep, WokenBy woken_by = WokenBy::time) {
    ++polls_;
    ++polls_since_sleep_;
    const bool is_woken = woken_by != WokenBy::time;
    if (polls_ == 1 || is_woken != (woken_by_ != WokenBy::time))
      spins_ = is_woken ? choice_.begin(is_woken) : choice_.spins();
    woken_by_ = woken_by;
    if (polls_ > spins_ && polls_ <= spins_ + yields()) {
      world_.yield();
    } else if (polls_ <= spins_ || (is_woken && polls_since_sleep_ < polls_between_sleeps)) {
      pause();
    } else {
      if (is_woken && spins_ > 0 && sleep_ns_ == 0) choice_.in_vain();
      sleep_ns_ = woken_by == WokenBy::event ? longest_ns_
                  : sleep_ns_ == 0           ? first_sleep_ns
                                             : sleep_ns_ * 2;
      sleep_ns_ = std::min(sleep_ns_, longest_ns_);
      polls_since_sleep_ = 0;
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
  // A wait that may end for shared memory, too, yields: it is one for one-sided steps of long
  // calls, which cost less CPU time where more has come before they look.
  int yields() const {
    if (woken_by_ == WokenBy::event) return 0;
    return woken_by_ == WokenBy::time && spins_ > 0 ? idle_yields : oversubscribed_yields;
  }
  static constexpr int idle_yields = 20'000;
  static constexpr std::int64_t first_sleep_ns = 20'000;
  static constexpr std::int64_t few_per_core = 8;

  sys::World& world_;
  SpinChoice own_;
  SpinChoice& choice_;
  std::int64_t longest_ns_;
  WokenBy woken_by_ = WokenBy::time;
  int spins_ = 0;  // of this wait
  std::int64_t polls_ = 0;
  std::int64_t polls_since_sleep_ = 0;
  std::int64_t sleep_ns_ = 0;
};

}  // namespace unisono::comm
