// What a group holds of one communicator: collectives, then messages, then puts and signals, then
// waits for signals.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "communicator.h"

namespace unisono::nccl {

struct Sent {
  Message message;
  void* stream = nullptr;
};

struct Queue {
  Handle comm;
  std::vector<Call> calls;
  std::vector<Sent> messages;
  std::vector<Step> puts;
  std::vector<Step> waits;
};

// Whether the call that gave it was right.
inline bool goes_on(ncclResult_t result) {
  return result == ncclSuccess || result == ncclInProgress;
}

// Blocking or not as the communicators are, all alike. No queue waits before the others have begun.
ncclResult_t run_queues(std::vector<Queue>& queues);

}  // namespace unisono::nccl
