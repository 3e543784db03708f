// How long a call's thread combines data: for the record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/fast_clock.h"
#include "engine/engine.h"

namespace unisono::engine {

// Every eighth piece is timed, because reading the clock twice takes some 50 ns and combining 16
// KiB a microsecond or two; the others count at the rate of the last ones that were. Combining
// reads one operand out of the slot that it arrived in, so the time includes that reading. For one
// thread at a time.
class ReduceMeter {
 public:
  // In simulated time nothing is measured, for computing takes none there.
  void set_on(bool is_time_real) { is_on_ = is_time_real; }
  void begin() { bytes_ = 0; }

  template <class Combine>
  void measure(std::size_t bytes, Combine combine) {
    if (bytes < least_measured_bytes || !is_on_) return combine();
    bytes_ += bytes;
    if (pieces_++ % pieces_for_one_timed != 0) return combine();
    if (!clock_) clock_.emplace();
    const std::int64_t begun_ns = clock_->now_ns();
    combine();
    timed_ns_ = timed_ns_ * kept + static_cast<double>(clock_->now_ns() - begun_ns);
    timed_bytes_ = timed_bytes_ * kept + static_cast<double>(bytes);
  }
  // Since begin(), about.
  std::int64_t total_ns() const {
    return bytes_ == 0
               ? 0
               : static_cast<std::int64_t>(static_cast<double>(bytes_) * timed_ns_ / timed_bytes_);
  }

 private:
  static constexpr std::uint32_t pieces_for_one_timed = 8;
  // Of what was timed before: the last four pieces have two thirds of the weight.
  static constexpr double kept = 0.75;

  std::optional<FastClock> clock_;
  bool is_on_ = false;
  std::uint32_t pieces_ = 0;
  std::size_t bytes_ = 0;
  double timed_ns_ = 0;
  double timed_bytes_ = 0;
};

}  // namespace unisono::engine
