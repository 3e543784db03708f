// Which collectives a rank's streams are at, for other ranks whose streams wait.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/fingerprint.h"

namespace unisono::comm {

// The progress thread shows; any thread looks, of any process that maps it. Zeroed memory has shown
// nothing.
class KeptLaunches {
 public:
  static constexpr std::size_t kept = 8;

  // The last collectives that are over and the first that is not, at most `kept`.
  void show(std::span<const CallId> calls) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const std::uint64_t which = std::uint64_t{calls[i].number} << 32 | calls[i].plan;
      Slot& slot = slots_[i];
      if (slot.which.load(std::memory_order_relaxed) == which &&
          slot.what.load(std::memory_order_relaxed) == calls[i].what)
        continue;
      // Release, all: a reader that sees the new `which` sees that `what` has been taken back, and
      // one that sees the new `what` sees its `which`.
      slot.what.store(0, std::memory_order_release);
      slot.which.store(which, std::memory_order_release);
      slot.what.store(calls[i].what, std::memory_order_release);
    }
  }
  // The collective of that number, if it is shown.
  std::optional<CallId> find(std::uint32_t number) const {
    for (const Slot& slot : slots_) {
      // Acquire, and the second look: as show() says.
      const std::uint64_t what = slot.what.load(std::memory_order_acquire);
      const std::uint64_t which = slot.which.load(std::memory_order_acquire);
      if (what == 0 || which >> 32 != number || slot.what.load(std::memory_order_relaxed) != what)
        continue;
      return CallId{.what = what, .number = number, .plan = static_cast<std::uint32_t>(which)};
    }
    return std::nullopt;
  }

 private:
  struct Slot {
    std::atomic<std::uint64_t> what{0};   // CallId::what; 0: none
    std::atomic<std::uint64_t> which{0};  // its number and plan
  };
  std::array<Slot, kept> slots_{};
};

}  // namespace unisono::comm
