// When kernels began and ended, for the record. They stamp into device memory (device/stamps.h);
// the host copies that on a stream of its own when somebody looks, never in a call's path.
#pragma once

#include <unisono/result.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/device/device_clock.h"
#include "engine/gpu/execution.h"
#include "engine/gpu/stamps.h"
#include "sys/cuda/device.h"
#include "trace/record.h"

namespace unisono::comm {

class KernelStamps {
 public:
  // `engine` outlives it, and stamps.
  static Result<std::unique_ptr<KernelStamps>> make(const engine::gpu::Engine& engine,
                                                    std::int64_t now_ns);
  ~KernelStamps();
  KernelStamps(const KernelStamps&) = delete;
  KernelStamps& operator=(const KernelStamps&) = delete;

  // A call is to be launched, the `number`-th from 1 of those on streams or of those that are
  // captured. Returns what its kernels are to stamp. Whoever drives the communicator.
  std::uint64_t begin_launch(std::uint64_t number, bool is_captured, std::int64_t now_ns);

  // Takes over the copy of the last time, if there is one, and begins another. Any thread.
  void look(std::int64_t now_ns);
  // Until the stamps of now are there, for `patience_ns` at most. Any thread.
  void refresh(std::int64_t patience_ns);
  // Gives what is known to a record that was read before. Any thread.
  void complete(trace::Record& record) const;

 private:
  struct Stamped {
    std::uint64_t number = 0;  // of all launches, from 1; 0: nothing
    std::uint64_t call = 0;
    std::int64_t begin_ns = 0;  // of the device's clock
    std::int64_t end_ns = 0;    // 0: it has not ended
  };
  // A launch of a kind, by its number among them, and when the host began it.
  struct Begun {
    std::uint64_t number = 0;
    std::int64_t host_ns = 0;
  };
  explicit KernelStamps(const engine::gpu::Engine& engine, std::int64_t now_ns)
      : engine_(engine), made_ns_(now_ns), calls_(most_launches) {}
  void start_copy();
  // True if there is no copy under way.
  bool take_copy(std::int64_t now_ns);
  void take(const engine::gpu::SeenLaunch& seen, std::int64_t now_ns);
  std::int64_t begun_ns(std::uint64_t call) const;
  std::int64_t on_host(std::int64_t device_ns) const { return device_ns + clock_.offset_ns(); }
  void complete(std::vector<trace::Entry>& entries) const;
  std::optional<std::uint64_t> sequence_of(std::uint64_t capture,
                                           const std::vector<trace::Entry>& entries) const;

  static constexpr std::size_t most_launches = 16'384;
  static constexpr std::size_t most_captures = 4096;

  const engine::gpu::Engine& engine_;
  const std::int64_t made_ns_;
  // Of the copy; held over what the driver is asked.
  std::timed_mutex copy_mutex_;
  sys::cuda::MappedHostMemory copy_;
  sys::cuda::StreamHandle* stream_ = nullptr;
  bool is_copying_ = false;
  bool has_failed_ = false;
  // Of what follows.
  mutable std::mutex mutex_;
  std::uint64_t next_ = 0;
  std::vector<Stamped> calls_;   // on streams, by number
  std::deque<Stamped> replays_;  // the last of which may not have ended
  std::array<Begun, most_captures> captures_{};
  std::array<Begun, 64> begun_{};
  std::uint64_t captured_ = 0;
  DeviceClock clock_;
  std::int64_t clock_error_ns_ = 0;
};

}  // namespace unisono::comm
