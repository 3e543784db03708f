// What one direction of a connection carries in one protocol, counted for the record.
//
// The thread that drives the communicator counts. Any thread may read: relaxed, for the figures
// order nothing and may be of moments beside each other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "sys/call_clock.h"
#include "trace/record.h"

namespace unisono::transport {

// One thread adds: to load and store is enough, and takes no locked instruction.
template <class Number>
void add_relaxed(std::atomic<Number>& to, std::type_identity_t<Number> amount) {
  to.store(to.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

class TrafficCounter {
 public:
  void count(std::size_t bytes) {
    add_relaxed(posts_, 1);
    add_relaxed(bytes_, bytes);
  }
  void add_to(trace::Traffic& out) const {
    out.posts += posts_.load(std::memory_order_relaxed);
    out.bytes += bytes_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> posts_{0};
  std::atomic<std::uint64_t> bytes_{0};
};

// In mapped memory, messages from so many bytes on are timed, in some calls: to read the clock, and
// the line in which the receiver tells what it has taken, costs 0.3 us of a call that sends one.
// That is 10 % of a call of 16 KiB, and a call in 64 pays it.
inline constexpr std::size_t least_timed_bytes = std::size_t{16} << 10;
enum class Timing : std::uint8_t { every_call, some_calls };

// How much is in flight, from when it is posted until the sender sees that it has landed, and for
// how long nothing is. The clock is read at these two moments alone. Calls that are not timed count
// as the next one that is.
class FlightMeter {
 public:
  // Without a clock nothing is timed. At most so many numbered messages are in flight.
  FlightMeter(sys::CallClock* clock, Timing timing, std::uint64_t slots)
      : clock_(clock),
        timing_(timing),
        is_timing_(clock != nullptr),
        posted_(static_cast<std::size_t>(slots)) {}

  // Whether a message of this call, which is about to be posted, is timed.
  bool begins_timed() {
    is_used_ = true;
    return is_timing_;
  }
  bool is_in_flight() const { return in_flight_bytes_ > 0; }

  // A message that is timed; first land_below() what has landed before it.
  void post(std::uint64_t number, std::size_t bytes);
  // Messages whose numbers are smaller have landed.
  void land_below(std::uint64_t number);
  // The same of what has no number.
  void begin(std::size_t bytes);
  void end(std::size_t bytes);
  // The call ends. Nobody looks until the next one that uses this connection, nor takes from the
  // network what tells of landing: the time between counts as idle.
  void end_call();

  void add_to(trace::Traffic& out) const;

 private:
  struct Posted {
    std::uint64_t number;
    std::uint64_t bytes;
  };
  // Since the last event before this one.
  void pass_time(bool was_in_flight);

  sys::CallClock* clock_;
  Timing timing_;
  bool is_timing_;        // in this call
  bool is_used_ = false;  // by it
  bool is_paused_ = false;
  std::uint64_t calls_ = 0;
  std::uint64_t weight_ = 1;  // calls that a timed one stands for
  std::uint64_t in_flight_bytes_ = 0;
  std::vector<Posted> posted_;  // a ring: what is in flight and has a number
  std::size_t first_ = 0;
  std::size_t pending_ = 0;
  std::atomic<std::uint64_t> most_in_flight_bytes_{0};
  std::atomic<double> busy_ns_{0};
  std::atomic<double> byte_ns_{0};         // bytes in flight, summed over the busy time
  std::atomic<std::int64_t> begun_ns_{0};  // the first event
  std::atomic<std::int64_t> since_ns_{0};  // the last one; 0: none
};

}  // namespace unisono::transport
