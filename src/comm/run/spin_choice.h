// Whether a thread that waits spins before it lets others have the core, by what its waits have
// come to. Ranks cannot be counted for that: those of other containers, emulated nodes and jobs
// share the cores unseen.
//
//   something came while it spun   spinning pays: the next wait spins, too
//   nothing came                   the core was kept from others in vain: 1 wait, then 2, 4, ... of
//                                  those that follow let go of it at once, until spinning pays
//   turns were lost                others want the core: as many waits as possible let go of it
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace unisono::comm {

class SpinChoice {
 public:
  // `spins`: polls without progress where the wait spins. Unless it adapts, every wait spins.
  SpinChoice(int spins, bool adapts) : spins_(spins), adapts_(adapts && spins > 0) {}

  // The spins where an event can end the sleep, if there are `spins` where only shared memory is
  // awaited. A poll of sockets takes some 0.5 us, and what ends a sleep costs a few tens of us at
  // any length: so a wait spins for about as long.
  static constexpr int spins_before_events(int spins) { return spins / 64; }

  // A wait for shared memory that does not mind what others want spins so long.
  int spins() const { return spins_; }
  // Whether poll number `polls` of a wait for shared memory alone asks what has come over sockets:
  // that is for others' sake, such as a peer that gets from this rank.
  static constexpr bool looks_for_others(std::int64_t polls) { return polls % 16 == 15; }
  // Whether the next wait spins.
  bool spins_next() const { return spins_ > 0 && left_out_.load(relaxed) == 0; }
  // A wait begins: its spins.
  int begin(bool is_woken) {
    if (const int left_out = left_out_.load(relaxed); left_out > 0) {
      left_out_.store(left_out - 1, relaxed);
      return 0;
    }
    return is_woken ? spins_before_events(spins_) : spins_;
  }
  // Something came while a wait for an event spun. `ask` says how many turns the thread has lost
  // since it was asked last: a system call, so it is called in one of so many waits.
  template <class Ask>
  void came(Ask ask) {
    if (!adapts_) return;
    in_vain_.store(0, relaxed);
    if (came_.fetch_add(1, relaxed) % waits_between_asks == waits_between_asks - 1)
      lost_turns(ask, most_lost_in_waits);
  }
  // A wait has spun for an event, and nothing came.
  void in_vain() {
    if (!adapts_) return;
    const int now = std::clamp(2 * in_vain_.load(relaxed), 1, most_left_out);
    in_vain_.store(now, relaxed);
    left_out_.store(now, relaxed);
  }
  // A wait that has spun long for what wakes no thread asks whether its spins are over.
  template <class Ask>
  bool lost_turns(Ask ask, std::int64_t allowed = 0) {
    if (!adapts_ || ask() <= allowed) return false;
    in_vain_.store(most_left_out, relaxed);
    left_out_.store(most_left_out, relaxed);
    return true;
  }

  // These bound the share of the processor that is spun away in vain, a spin in so many waits, and
  // how late a rank notices that the cores have become free.
  static constexpr int most_left_out = 64;
  static constexpr int waits_between_asks = 16;
  // So many in these waits are other programs that run now and then.
  static constexpr std::int64_t most_lost_in_waits = 4;

 private:
  // Several threads may wait; what one of them does not see in time is a wait more or less.
  static constexpr auto relaxed = std::memory_order_relaxed;

  int spins_;
  bool adapts_;
  std::atomic<int> left_out_{0};
  std::atomic<int> in_vain_{0};
  std::atomic<std::uint64_t> came_{0};
};

}  // namespace unisono::comm
