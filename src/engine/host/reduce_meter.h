// How long a call's thread combines data: for the record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/fast_clock.h"
#include "engine/engine.h"

namespace unisono::engine {

// For one thread at a time. Combining reads one operand out of the slot that it arrived in, so what
// is measured includes that reading.
class ReduceMeter {
 public:
  // In simulated time nothing is measured, for computing takes none there.
  void begin(bool is_time_real) {
    if (is_time_real && !clock_) clock_.emplace();
    total_ns_ = 0;
  }

  template <class Combine>
  void measure(std::size_t bytes, Combine combine) {
    if (bytes < least_measured_bytes || !clock_) return combine();
    const std::int64_t begun_ns = clock_->now_ns();
    combine();
    total_ns_ += clock_->now_ns() - begun_ns;
  }
  // Since begin().
  std::int64_t total_ns() const { return total_ns_; }

 private:
  std::optional<FastClock> clock_;
  std::int64_t total_ns_ = 0;
};

}  // namespace unisono::engine
