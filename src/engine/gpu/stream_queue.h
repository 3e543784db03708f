// What a call puts on a stream for the copy engines. Operations on memory are handed over together,
// which saves a call of the driver each.
#pragma once

#include <unisono/result.h>

#include <array>
#include <vector>

#include "engine/gpu/copy_links.h"

namespace unisono::engine::gpu {

class StreamQueue {
 public:
  // The stream's device's context is current whenever something is put here. `fork`: null for none.
  // `counts`: there may be no room for what is put here; not for what is captured.
  StreamQueue(const sys::cuda::Device& device, CopyLinks& links, sys::cuda::StreamHandle* stream,
              const CopyLinks::Fork* fork, bool counts, std::int64_t timeout_ns)
      : device_(device),
        links_(links),
        stream_(stream),
        fork_(fork),
        counts_(counts),
        timeout_ns_(timeout_ns) {}

  // A slot of the peer's for the next message; put() what belongs there, then sent().
  Result<sys::cuda::DeviceAddress> begin_send(CopyLink& link);
  Status end_send(CopyLink& link, std::uint32_t tag);
  // The slot of ours that holds the next message, which is of that call: take from it, then call
  // end_receive().
  Result<sys::cuda::DeviceAddress> begin_receive(CopyLink& link, std::uint32_t tag);
  Status end_receive(CopyLink& link);
  // A zero-copy message. The receiver says that its place may be written, for which the
  // sender waits; the sender tells of each part, for which the receiver waits.
  struct ZeroCopy {
    CopyLink* link = nullptr;
    std::uint64_t message = 0;  // its number among the link's zero-copy ones
    std::uint64_t first_part = 0;
    int parts = 1;
    std::uint32_t tag = 0;
  };
  Status want(const ZeroCopy& message);
  Status await_destination(const ZeroCopy& message);
  // Postpones the signals until something waits, or tell_now(): successive stores are signalled
  // together, because flags between copies halve the copies' pace.
  void signal_stored(const ZeroCopy& message, int part);
  Status tell_now();
  Status await_stored(const ZeroCopy& message, int part);
  Status copy(sys::cuda::DeviceAddress to, sys::cuda::DeviceAddress from, std::size_t bytes);
  // A copy inside the device that nothing on the stream needs before finish(): beside the others,
  // where there is a fork.
  Status copy_concurrently(sys::cuda::DeviceAddress to, sys::cuda::DeviceAddress from,
                           std::size_t bytes);
  // Whether to pause() before more is put here, and whether to wait still.
  bool is_full() const { return counts_ && links_.commands() >= CopyLinks::most_commands; }
  bool is_half_full() const { return counts_ && links_.commands() > CopyLinks::most_commands / 2; }
  // All that was put here is on the stream.
  Status pause();
  // Behind all: the stream waits for nothing any more.
  Status finish();

 private:
  static constexpr std::size_t most_operations = 64;

  Status add(sys::cuda::MemoryOperation operation);
  Status flush();
  void report();
  Status end_waits();
  Status store(sys::cuda::DeviceAddress flag, std::uint64_t value);
  Status wait(CopyWait wait);

  const sys::cuda::Device& device_;
  CopyLinks& links_;
  sys::cuda::StreamHandle* stream_;
  const CopyLinks::Fork* fork_;
  bool counts_;
  std::int64_t timeout_ns_;
  std::array<sys::cuda::MemoryOperation, most_operations> operations_;
  std::size_t pending_ = 0;
  struct Untold {
    sys::cuda::DeviceAddress flag;
    std::uint32_t tag;
  };
  std::vector<Untold> untold_;
  bool has_waited_ = false;
  bool is_forked_ = false;
};

}  // namespace unisono::engine::gpu
