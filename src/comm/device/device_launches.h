// How a communicator's calls are put on streams, one after another, and whether they are over.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "comm/device/kernel_stamps.h"
#include "comm/device/launch_order.h"
#include "comm/device/mappings.h"
#include "comm/device/ring_links.h"
#include "comm/run/stream_calls.h"
#include "engine/gpu/execution.h"
#include "sys/world.h"

namespace unisono::comm {

// Only the thread that drives the communicator, except where a comment says otherwise.
class DeviceLaunches final : public engine::gpu::LaunchScope {
 public:
  // The arguments outlive it.
  static Result<std::unique_ptr<DeviceLaunches>> make(engine::gpu::Engine& engine,
                                                      Mappings& mappings, sys::World& world);
  ~DeviceLaunches() override;
  DeviceLaunches(const DeviceLaunches&) = delete;
  DeviceLaunches& operator=(const DeviceLaunches&) = delete;

  // Before the first one. `rings` may be null.
  void begin(std::shared_ptr<LaunchOrder> order, RingLinks* rings);

  Result<engine::gpu::OpenLaunch> open(sys::cuda::StreamHandle* stream);
  void find_peer_mappings(const void* data, std::size_t bytes,
                          std::span<sys::cuda::DeviceAddress> by_rank) override {
    mappings_.find(data, bytes, by_rank, capture_ != 0);
  }
  Status make_room(int blocks) override;
  std::uint64_t key() const override {
    return key_of(capture_ != 0 ? captured_launches_ : last_launch_.number + 1, capture_ != 0);
  }
  void fall_back(trace::Fallback why, const trace::ChosenPath& instead) override {
    last_launch_.fallback = why;
    last_launch_.instead = instead;
  }
  device::Stamp stamp() const override { return stamp_; }
  Status finish() override;
  void close() override;

  // These are StreamCalls' functions.
  bool is_busy() const;
  const StreamCalls::Launch& last() const { return last_launch_; }
  std::uint64_t ended();
  void complete_fallbacks(std::vector<trace::Entry>& entries) const;
  Status check_device() const;
  // Waits for what is on streams, replays of graphs included.
  void wait();
  // Null: kernels stamp nothing. Any thread.
  KernelStamps* stamps() const { return stamps_.get(); }

 private:
  DeviceLaunches(engine::gpu::Engine& engine, Mappings& mappings, sys::World& world)
      : engine_(engine), mappings_(mappings), world_(world) {}
  const sys::cuda::Device& device() const { return engine_.device(); }
  Status look_at(sys::cuda::StreamHandle* stream);
  // DeviceLaunches on streams and those into graphs count apart.
  static std::uint64_t key_of(std::uint64_t launch, bool is_captured) {
    return launch << 1 | (is_captured ? 1U : 0U);
  }
  void collect_fallbacks() const;

  engine::gpu::Engine& engine_;
  Mappings& mappings_;
  sys::World& world_;
  RingLinks* rings_ = nullptr;
  std::shared_ptr<LaunchOrder> order_;
  // Its last event is recorded after each call, so that one on another stream follows it.
  LaunchOrder::Launched launched_;
  // Events of the latest launches, by number: `launched_.last` is one of them.
  static constexpr std::size_t most_events = 32;
  std::array<sys::cuda::EventHandle*, most_events> events_{};
  StreamCalls::Launch last_launch_;
  std::uint64_t captured_launches_ = 0;
  std::uint64_t ended_ = 0;
  sys::cuda::StreamHandle* last_stream_ = nullptr;
  std::atomic<bool> has_launched_{false};
  bool is_in_graphs_ = false;
  std::unique_ptr<KernelStamps> stamps_;
  // Keys of launches whose kernels told of a fallback: the engine has the latest alone.
  static constexpr std::size_t most_fallbacks = 16'384;
  mutable std::mutex fallbacks_mutex_;
  mutable std::set<std::uint64_t> fallbacks_;
  mutable std::vector<std::uint64_t> told_fallbacks_;  // by the engine, at the last look
  // The open call has these.
  sys::cuda::StreamHandle* stream_ = nullptr;
  std::unique_lock<std::mutex> order_lock_;
  std::optional<sys::cuda::Current> current_;
  unsigned long long capture_ = 0;  // 0: its stream is not captured
  int blocks_ = 0;
  device::Stamp stamp_{};
};

}  // namespace unisono::comm
