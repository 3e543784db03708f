// What the scheduler looks after of calls on streams once they are launched.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <vector>

#include "trace/record.h"
#include "transport/fault.h"

namespace unisono::comm {

// Any thread, except where only the thread that drives the communicator may call.
class StreamCalls {
 public:
  virtual ~StreamCalls() = default;
  // Whether something put on a stream is not over, as far as is known; of what graphs replay, only
  // what waits for copy engines.
  virtual bool is_busy() const = 0;
  // Launches count from 1; those into a captured graph do not.
  struct Launch {
    std::uint64_t number = 0;
    bool is_captured = false;
    std::uint64_t capture = 0;  // of the launches into graphs, from 1
    // Where it took another path than the chosen one: why, and which.
    trace::Fallback fallback = trace::Fallback::none;
    trace::ChosenPath instead;
  };
  virtual Launch last_launch() const = 0;
  // Launches up to this number are over.
  virtual std::uint64_t ended_launches() = 0;
  // Gives entries of launches that their kernels, told by a peer, ran in LL128 that path.
  virtual void complete_fallbacks(std::vector<trace::Entry>& entries) const = 0;
  // What a kernel, or a stream that waited for signals, came to.
  virtual Status failure() const = 0;
  // What thread blocks have been waiting for so long that they tell. Where any tell, it takes some
  // 10 ms to know which of them wait still.
  virtual std::vector<trace::Waiting> long_waits() const = 0;
  // An environment error once the device can no longer be used, as after a fault in a kernel of the
  // user's.
  virtual Status check_device() const = 0;
  // While a call is not over: whether its peers live, one at each call. Only the thread that
  // drives.
  virtual Status check_peers() = 0;
  // Exchanges descriptions of memory with other ranks. Called now and then.
  virtual void share_memory() = 0;
  // Now and then: streams that wait have no deadlines of their own.
  virtual void look(std::int64_t now_ns) = 0;
  // Makes kernels give up, and notifies the peers.
  virtual void abort(transport::Fault fault) = 0;
};

}  // namespace unisono::comm
