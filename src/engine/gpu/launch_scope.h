// A call while it is put on its stream.
#pragma once

#include <unisono/result.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "device/common.h"
#include "sys/cuda/device.h"
#include "trace/record.h"

namespace unisono::engine::gpu {

// Its communicator opens it (Resources::open), in the order of calls, and holds until it is closed
// what the calls of others must not change meanwhile.
class LaunchScope {
 public:
  virtual ~LaunchScope() = default;
  // Resources::find_peer_mappings() says what it finds.
  virtual void find_peer_mappings(const void* data, std::size_t bytes,
                                  std::span<sys::cuda::DeviceAddress> by_rank) = 0;
  // Before a kernel whose thread blocks wait for peers: the place to order it after kernels of
  // others that may leave no room for so many.
  virtual Status make_room(int blocks) = 0;
  // By which number the call's kernels tell of a fallback (Engine::fallbacks()). 0: they tell of
  // none.
  virtual std::uint64_t key() const { return 0; }
  // This rank's launch takes another path than the chosen one.
  virtual void fall_back(trace::Fallback /*why*/, const trace::ChosenPath& /*instead*/) {}
  // The call's kernels stamp it.
  virtual device::Stamp stamp() const { return {}; }
  // All of the call is on its stream.
  virtual Status finish() = 0;
  // On every exit, by OpenLaunch.
  virtual void close() = 0;
};

// Closes it.
class OpenLaunch {
 public:
  explicit OpenLaunch(LaunchScope& scope) : scope_(&scope) {}
  ~OpenLaunch() {
    if (scope_ != nullptr) scope_->close();
  }
  OpenLaunch(OpenLaunch&& other) noexcept : scope_(std::exchange(other.scope_, nullptr)) {}
  OpenLaunch& operator=(OpenLaunch&&) = delete;

  LaunchScope& operator*() const { return *scope_; }
  LaunchScope* operator->() const { return scope_; }

 private:
  LaunchScope* scope_;
};

}  // namespace unisono::engine::gpu
