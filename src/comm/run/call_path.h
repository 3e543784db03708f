// Where calls run: in host memory, or on the streams of a device.
#pragma once

#include <unisono/communicator.h>

#include <array>
#include <span>

#include "comm/run/prepared_call.h"
#include "comm/run/task.h"
#include "comm/select/plans.h"

namespace unisono::comm {

class CallPath {
 public:
  virtual ~CallPath() = default;

  // Misuse if the path cannot use the call's buffers or its stream. Any thread.
  virtual Status check(const CallView& call) const = 0;
  // The plans that a call chooses from. Fills in what its options leave open.
  virtual Result<Plans*> plans_for(Collective collective, CallOptions& options) const = 0;
  // Fills the task for messages that are right in all that does not depend on the path.
  virtual Status prepare(std::span<const Message> messages, const CallOptions& options,
                         Task& task) = 0;
  // Plans are registered with these, and explained by them; null while there are none.
  virtual Plans* plans() const = 0;
  virtual void report(MemoryReport& report) const = 0;
  // Closes all connections; only when no call is pending.
  virtual void close() = 0;

  // The last call of each collective. With the scheduler's turn.
  PreparedCollective& prepared(Collective collective) {
    return prepared_[static_cast<std::size_t>(collective)];
  }
  void forget_prepared() {
    for (PreparedCollective& call : prepared_) call.execution = nullptr;
  }

 private:
  std::array<PreparedCollective, collective_count> prepared_;
};

}  // namespace unisono::comm
