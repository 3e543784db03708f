// A batch holds the calls that a thread starts between startCoalescing and endCoalescing.
//
// A batch belongs to the thread that opened it. Calls of other threads, and of futures' callbacks,
// run as if there were none: PyTorch's interface says nothing of threads, and a call that joins a
// batch returns before it has run.
#pragma once

#include <unisono/communicator.h>

#include <optional>
#include <vector>

#include "by_thread.h"
#include "hooks.h"
#include "work.h"

namespace unisono::pytorch {

struct Batch {
  std::optional<c10::Device> device;
  std::vector<unisono::Work> calls;  // collectives, which have been started
  Hooks::Keys parts;                 // theirs
  // Sent and received at the end, so that nothing of a batch that is dropped has been sent. Those
  // from any source are received one by one.
  std::vector<Message> messages, from_any;
  Hooks::Keys message_parts;
  Holding holding;
};

// The open batches of a group.
using Batches = ByThread<Batch>;

}  // namespace unisono::pytorch
