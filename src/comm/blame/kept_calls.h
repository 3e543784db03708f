// Which collectives a rank made last, for other ranks that wait in the one of the same number.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/fingerprint.h"

namespace unisono::comm {

// One thread shows; any thread looks, of any process that maps it. Zeroed memory has shown nothing.
class KeptCalls {
 public:
  // Ranks that have gone on by two collectives still tell what the one before these was.
  static constexpr std::size_t kept = 4;

  // The next collective is that call.
  void show(const CallId& call) {
    // Release, all: a reader that sees the number sees the call, and one that sees a part of a call
    // sees the number of the collective before it.
    const std::uint64_t number = shown_.load(std::memory_order_relaxed);
    store(plans_[number % kept], call.plan);
    store(calls_[number % kept], call.what);
    shown_.store(number + 1, std::memory_order_release);
  }
  // How many have been shown.
  std::uint64_t shown() const { return shown_.load(std::memory_order_acquire); }
  // The call of that number, from 0; none if it has not been shown, or is no longer kept.
  std::optional<CallId> find(std::uint64_t number) const {
    if (shown() <= number) return std::nullopt;
    // Acquire, and the second look: as show() says, so the call is that of this number.
    const CallId call{.what = calls_[number % kept].load(std::memory_order_acquire),
                      .number = static_cast<std::uint32_t>(number),
                      .plan = plans_[number % kept].load(std::memory_order_acquire)};
    if (shown() >= number + kept) return std::nullopt;
    return call;
  }

 private:
  // What is there already, as in a loop of one call, is as right for its new number.
  template <class Value>
  static void store(std::atomic<Value>& to, Value value) {
    if (to.load(std::memory_order_relaxed) != value) to.store(value, std::memory_order_release);
  }

  std::atomic<std::uint64_t> shown_{0};
  std::array<std::atomic<std::uint64_t>, kept> calls_{};  // CallId::what
  std::array<std::atomic<std::uint32_t>, kept> plans_{};  // CallId::plan
};

}  // namespace unisono::comm
