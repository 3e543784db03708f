// What arrives for one end, brought into the order in which it was sent.
//
// A wire may deliver out of order: a signal is stored when its own write and every one before it
// have arrived. Writes are counted by both ends; an immediate has the lowest 8 bits of the count.
// The sender has at most `window` writes under way that it was not told of, so those bits tell
// which one it is.
#pragma once

#include <unisono/result.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "transport/ofi/message.h"
#include "transport/transport.h"

namespace unisono::transport::ofi {

class Inbox {
 public:
  static constexpr std::uint64_t window = 128;
  // The sender is told when so many have arrived since it was told last: while that message is on
  // its way, the other half of the window is used.
  static constexpr std::uint64_t most_untold = window / 2;

  Inbox(std::atomic<std::uint64_t>* signals, int signal_count, int peer)
      : signals_(signals), signal_count_(signal_count), peer_(peer) {}

  // A write has arrived; peer errors where that cannot be.
  Status arrive(const Immediate& immediate);
  // A signal's value has arrived as a message.
  Status arrive(const Note& value);
  // Whether the count below is that of what arrived. After an error it stays behind.
  bool is_whole() const { return is_whole_; }
  // How many have arrived with all before them.
  std::uint64_t in_order() const { return next_; }
  // Of these, how many went into exposed memory or to a get's destination.
  std::uint64_t in_place() const { return in_place_; }

 private:
  struct Arrived {
    bool is_there = false;
    bool is_total = false;
    bool is_in_place = false;
    bool has_signal = false;
    std::uint32_t index = 0;
    std::uint64_t value = 0;  // or by how much it grows
  };
  Status keep(std::uint64_t distance, const Arrived& what);
  Status put_in_order(std::uint64_t distance, const Arrived& what);
  Status store(const Arrived& what);

  std::atomic<std::uint64_t>* signals_;
  int signal_count_;
  int peer_;
  std::uint64_t next_ = 0;
  std::uint64_t in_place_ = 0;
  bool is_whole_ = true;
  std::array<Arrived, window> arrived_;
};

}  // namespace unisono::transport::ofi
