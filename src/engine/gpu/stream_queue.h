// What a call puts on a stream for the copy engines. Operations on memory are handed over together,
// which saves a call of the driver each.
#pragma once

#include <unisono/result.h>

#include <array>

#include "engine/gpu/copy_links.h"

namespace unisono::engine::gpu {

class StreamQueue {
 public:
  // The stream's device's context is current as long as the queue lives.
  StreamQueue(const sys::cuda::Device& device, CopyLinks& links, sys::cuda::StreamHandle* stream,
              std::int64_t timeout_ns)
      : device_(device), links_(links), stream_(stream), timeout_ns_(timeout_ns) {}

  // A slot of the peer's for the next message; put() what belongs there, then sent().
  Result<sys::cuda::DeviceAddress> begin_send(CopyLink& link);
  Status end_send(CopyLink& link);
  // The slot of ours that holds the next message; likewise.
  Result<sys::cuda::DeviceAddress> begin_receive(CopyLink& link);
  Status end_receive(CopyLink& link);
  Status copy(sys::cuda::DeviceAddress to, sys::cuda::DeviceAddress from, std::size_t bytes);
  // Behind all: the stream waits for nothing any more.
  Status finish();

 private:
  static constexpr std::size_t most_operations = 64;

  Status add(sys::cuda::MemoryOperation operation);
  Status flush();
  Status wait(trace::Waiting::Kind kind, const CopyLink& link, std::uint64_t message,
              sys::cuda::DeviceAddress flag);

  const sys::cuda::Device& device_;
  CopyLinks& links_;
  sys::cuda::StreamHandle* stream_;
  std::int64_t timeout_ns_;
  std::array<sys::cuda::MemoryOperation, most_operations> operations_;
  std::size_t pending_ = 0;
  bool has_waited_ = false;
};

}  // namespace unisono::engine::gpu
