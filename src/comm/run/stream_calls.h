// What the scheduler looks after of calls on streams once they are launched.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <vector>

#include "trace/record.h"
#include "transport/fault.h"

namespace unisono::comm {

// Any thread, but for check_peers() and what is said of launches: whoever drives the communicator.
class StreamCalls {
 public:
  virtual ~StreamCalls() = default;
  // Whether something put on a stream is not over, as far as is known; of what graphs replay, only
  // what waits for copy engines.
  virtual bool is_busy() const = 0;
  // Launches count from 1; those into a captured graph count for themselves.
  struct Launch {
    std::uint64_t number = 0;
    bool is_captured = false;
  };
  virtual Launch last_launch() const = 0;
  // How many there were, without those that were captured.
  virtual std::uint64_t launches() const = 0;
  // Launches up to this number are over.
  virtual std::uint64_t ended_launches() = 0;
  // What kernels told of a launch, or of a graph's replay of a captured one.
  struct Stamped {
    std::uint64_t run = 0;  // counts both
    Launch launch;
    std::int64_t begin_ns = 0;  // of the device's clock; 0: not known
    std::int64_t end_ns = 0;
    bool has_ended = false;
  };
  // In their order, what came since the last time, and at the end what has begun and not ended.
  virtual std::vector<Stamped> read_stamps(std::int64_t now_ns) = 0;
  // The host's clock minus the device's, and by how much that may be wrong; 0: nothing is known.
  // Any thread.
  virtual std::int64_t device_clock_offset_ns() const = 0;
  virtual std::int64_t device_clock_error_ns() const = 0;
  // What thread blocks of kernels wait for that do so for a while. Any thread.
  virtual std::vector<trace::Waiting> waits() const = 0;
  // What a kernel, or a stream that waited for signals, came to.
  virtual Status failure() const = 0;
  // An environment error once the device can no longer be used, as after a fault in a kernel of the
  // user's.
  virtual Status check_device() const = 0;
  // While a call is not over: whether its peers live, each in turn. Whoever drives the
  // communicator.
  virtual Status check_peers() = 0;
  // Tells other ranks of this one's memory, and hears of theirs; now and then.
  virtual void share_memory() = 0;
  // Now and then: streams that wait have no deadlines of their own.
  virtual void look(std::int64_t now_ns) = 0;
  // Kernels give up, and peers are told.
  virtual void abort(transport::Fault fault) = 0;
};

}  // namespace unisono::comm
