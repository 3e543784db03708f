// A batch holds the calls that a thread starts between startCoalescing and endCoalescing.
//
// A batch belongs to the thread that opened it. Calls of other threads, and of futures' callbacks,
// run as if there were none: PyTorch's interface says nothing of threads, and a call that joins a
// batch returns before it has run.
#pragma once

#include <unisono/communicator.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

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

// The open batches of a group, one for each thread. Any thread.
class Batches {
 public:
  // The calling thread's; null if it has none. Valid until this thread takes it, or clear().
  Batch* own();
  // False if this thread has one.
  bool open();
  // Takes the calling thread's.
  std::optional<Batch> take();
  // Forgets those of all threads, which must make no call meanwhile.
  void clear();

 private:
  // Spares calls without a batch the lock. Relaxed: a thread sees what it has written itself, and
  // needs to know of no other's batch.
  std::atomic<std::size_t> count_ = 0;
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, Batch> batches_;  // by thread
};

}  // namespace unisono::pytorch
