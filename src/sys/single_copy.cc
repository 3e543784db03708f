#include "sys/single_copy.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/block_copy.h"
#include "sys/cross_memory.h"
#include "sys/thread.h"

namespace unisono::sys {
namespace {

// Less than what has the C library keep freed memory from the kernel from then on.
constexpr std::size_t message_bytes = std::size_t{64} << 10;
// The first two find no pages yet.
constexpr int rounds = 8;

using Clock = std::chrono::steady_clock;

double ns_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

// A rank that is bound to one core exchanges with those of other cores. Stays where it is if the
// kernel allows no other core.
void leave_core(int core) {
  cpu_set_t others;
  CPU_ZERO(&others);
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (i != core) CPU_SET(i, &others);
  sched_setaffinity(0, sizeof others, &others);
}

// The sender fills its memory and the slot, the receiver takes from both.
class Exchange {
 public:
  CopyCosts measure() {
    const int core = sched_getcpu();
    auto sender = start_thread("a measurement of copies", [&] {
      leave_core(core);
      for (int round = 0; round < rounds; ++round) send(round);
    });
    if (!sender.ok()) return {};
    for (int round = 0; round < rounds; ++round) receive();
    sender->join();
    if (!kernel_copies_) return {};
    const double bytes = message_bytes;
    return {.slots_ns_per_byte = (into_slot_ns_ + out_of_slot_ns_) / bytes,
            .kernel_ns_per_byte = from_source_ns_ / bytes};
  }

 private:
  static constexpr double never = std::numeric_limits<double>::max();

  void send(int round) {
    std::ranges::fill(source_, static_cast<std::byte>(round));
    const auto begin = Clock::now();
    // Senders take the faster one: see SlotStore.
    const auto copy = round % 2 == 0 ? block_copy : string_copy;
    copy(slot_.data(), source_.data(), message_bytes);
    into_slot_ns_ = std::min(into_slot_ns_, ns_since(begin));
    turn_.arrive_and_wait();
    turn_.arrive_and_wait();
  }

  void receive() {
    turn_.arrive_and_wait();
    auto begin = Clock::now();
    kernel_copies_ &=
        read_process_memory(getpid(), destination_.data(),
                            reinterpret_cast<std::uintptr_t>(source_.data()), message_bytes)
            .ok();
    from_source_ns_ = std::min(from_source_ns_, ns_since(begin));
    begin = Clock::now();
    block_copy(destination_.data(), slot_.data(), message_bytes);
    out_of_slot_ns_ = std::min(out_of_slot_ns_, ns_since(begin));
    turn_.arrive_and_wait();
  }

  std::vector<std::byte> source_ = std::vector<std::byte>(message_bytes);
  std::vector<std::byte> slot_ = std::vector<std::byte>(message_bytes);
  std::vector<std::byte> destination_ = std::vector<std::byte>(message_bytes);
  std::barrier<> turn_{2};
  double into_slot_ns_ = never;    // the sender's
  double out_of_slot_ns_ = never;  // these are the receiver's
  double from_source_ns_ = never;
  bool kernel_copies_ = true;
};

}  // namespace

CopyCosts measure_copies() { return Exchange().measure(); }

}  // namespace unisono::sys
