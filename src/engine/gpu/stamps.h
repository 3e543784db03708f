// What kernels tell of their launches: when each began and ended, and what blocks wait for now.
// Read from memory that the kernels store to (device/program.h), which asks the driver nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "device/program.h"
#include "trace/record.h"

namespace unisono::engine::gpu {

// Gives each launch's stamps once its end is there, in the order of the launches. For one thread at
// a time.
class StampReader {
 public:
  // `mailbox` outlives it.
  explicit StampReader(const device::Mailbox* mailbox = nullptr) : mailbox_(mailbox) {}

  // Of the device's clock, modulo 2^48.
  struct Seen {
    std::uint64_t number = 0;      // of all launches, replays among them
    std::uint64_t call = 0;        // device::Stamp::call
    std::uint64_t begin_time = 0;  // 0: not known
    std::uint64_t end_time = 0;    // 0: it has not ended
  };
  // What came since the last time; at the end the launch that has begun and not ended, if there is
  // one, each time. Launches that were overwritten before they were read are left out.
  std::vector<Seen> read();

 private:
  const device::Mailbox* mailbox_;
  std::uint64_t next_ = 1;
};

// What thread blocks have waited for longer than a look at the clock takes to come. Any thread.
trace::Waiting::Kind waiting_kind_of(std::uint32_t failure_kind);
std::vector<trace::Waiting> published_waits(const device::Mailbox& mailbox);

}  // namespace unisono::engine::gpu
