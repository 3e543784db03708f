// How far a simulation is, readable by other threads, and their request that it stop.
#pragma once

#include <atomic>
#include <cstdint>

namespace unisono::simulate {

// Relaxed throughout: each number stands for itself.
class Progress {
 public:
  // Steps of thread blocks, tile by tile, or operations of GOAL; 0 until they have been counted.
  std::uint64_t total() const { return total_.load(std::memory_order_relaxed); }
  std::uint64_t done() const { return done_.load(std::memory_order_relaxed); }
  // The simulation ends soon, with an error.
  void stop() { stop_.store(true, std::memory_order_relaxed); }

  bool is_stopped() const { return stop_.load(std::memory_order_relaxed); }

  // For simulations.
  void set_total(std::uint64_t total) { total_.store(total, std::memory_order_relaxed); }
  // False if it is to stop.
  bool report(std::uint64_t done) {
    done_.store(done, std::memory_order_relaxed);
    return !is_stopped();
  }

 private:
  std::atomic<std::uint64_t> total_{0}, done_{0};
  std::atomic<bool> stop_{false};
};

// Once in so many events a simulation says how far it is: some hundredths of a second apart.
inline constexpr std::uint64_t events_between_reports = std::uint64_t{1} << 14;

}  // namespace unisono::simulate
