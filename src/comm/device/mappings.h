// Where the devices of a communicator reach each other's memory: each rank makes known to the
// others what its calls use, and they map it.
//
// Its lock is held for milliseconds while memory is mapped: calls that are not captured do not wait
// for it, and find nothing then. Any thread.
#pragma once

#include <unisono/communicator.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>

#include "transport/nvlink/registrations.h"

namespace unisono::comm {

class Mappings {
 public:
  // `is_busy` tells whether a launch is not over; what peers have mapped is let go only when none
  // is.
  explicit Mappings(std::function<bool()> is_busy) : is_busy_(std::move(is_busy)) {}

  // Without it no memory is shared.
  void start(std::unique_ptr<transport::nvlink::Registrations> registrations);
  void stop() { start(nullptr); }

  // engine::gpu::Resources::find_peer_mappings() says what it finds.
  void find(const void* data, std::size_t bytes, std::span<sys::cuda::DeviceAddress> by_rank,
            bool is_captured);
  // Makes memory known before it is first used, and waits until the others have mapped it,
  // `patience_ns` at most. An environment error if the driver cannot share it.
  Status add(const void* data, std::size_t bytes, int rank, std::int64_t patience_ns);
  // Exchanges descriptions of memory with the others; now and then.
  void exchange();
  // After a call: only one on memory that was not known takes the time.
  void exchange_news();
  void report(MemoryReport& report, int ranks) const;

 private:
  void wait_for_answers();

  const std::function<bool()> is_busy_;
  mutable std::mutex mutex_;
  std::unique_ptr<transport::nvlink::Registrations> registrations_;
  bool waits_for_answers_ = true;
};

}  // namespace unisono::comm
