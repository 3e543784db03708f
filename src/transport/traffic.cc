#include "transport/traffic.h"

#include <algorithm>

namespace unisono::transport {

void FlightMeter::post(std::uint64_t number, std::size_t bytes) {
  posted_[(first_ + pending_) % posted_.size()] = {number, bytes};
  ++pending_;
  begin(bytes);
}

void FlightMeter::land_below(std::uint64_t number) {
  std::uint64_t landed = 0;
  for (; pending_ > 0 && posted_[first_].number < number; --pending_) {
    landed += posted_[first_].bytes;
    first_ = (first_ + 1) % posted_.size();
  }
  if (landed > 0) end(landed);
}

void FlightMeter::begin(std::size_t bytes) {
  pass_time(is_in_flight());
  in_flight_bytes_ += bytes;
  if (in_flight_bytes_ > most_in_flight_bytes_.load(std::memory_order_relaxed))
    most_in_flight_bytes_.store(in_flight_bytes_, std::memory_order_relaxed);
}

void FlightMeter::end(std::size_t bytes) {
  pass_time(is_in_flight());
  in_flight_bytes_ -= bytes;
}

void FlightMeter::end_call() {
  // So that a short job has figures.
  constexpr std::uint64_t calls_timed_first = 8;
  constexpr std::uint64_t calls_for_one_timed = 64;
  if (!is_used_) return;
  is_used_ = false;
  if (is_in_flight() && !is_paused_) {
    pass_time(true);
    is_paused_ = true;
  }
  if (timing_ == Timing::every_call || clock_ == nullptr) return;
  weight_ = is_timing_ ? 1 : weight_ + 1;
  ++calls_;
  is_timing_ = calls_ < calls_timed_first || calls_ % calls_for_one_timed == 0;
}

void FlightMeter::pass_time(bool was_in_flight) {
  was_in_flight &= !is_paused_;
  is_paused_ = false;
  const std::int64_t now_ns = clock_->now_ns();
  const std::int64_t since_ns = since_ns_.load(std::memory_order_relaxed);
  since_ns_.store(now_ns, std::memory_order_relaxed);
  if (since_ns == 0) begun_ns_.store(now_ns, std::memory_order_relaxed);
  if (since_ns == 0 || !was_in_flight) return;
  const double busy_ns = static_cast<double>(now_ns - since_ns) * static_cast<double>(weight_);
  add_relaxed(busy_ns_, busy_ns);
  add_relaxed(byte_ns_, busy_ns * static_cast<double>(in_flight_bytes_));
}

void FlightMeter::add_to(trace::Traffic& out) const {
  out.most_in_flight_bytes = most_in_flight_bytes_.load(std::memory_order_relaxed);
  const double busy_ns = busy_ns_.load(std::memory_order_relaxed);
  const std::int64_t passed_ns =
      since_ns_.load(std::memory_order_relaxed) - begun_ns_.load(std::memory_order_relaxed);
  if (busy_ns <= 0) return;
  out.busy_ns = std::min(static_cast<std::int64_t>(busy_ns), passed_ns);
  out.idle_ns = passed_ns - out.busy_ns;
  out.mean_in_flight_bytes =
      std::min(out.most_in_flight_bytes,
               static_cast<std::uint64_t>(byte_ns_.load(std::memory_order_relaxed) / busy_ns));
}

}  // namespace unisono::transport
