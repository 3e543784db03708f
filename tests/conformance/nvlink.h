// NVLink for tests whose GPUs are emulated: the program is linked to the driver of
// tests/emulated_gpu, whose devices' memory is the host's and is shared between processes.
#pragma once

#include <atomic>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/try.h"
#include "conformance/harness.h"
#include "transport/nvlink/transport.h"
#include "transport/shm/transport.h"

namespace unisono::test {

// With the control transport that it needs, which a job has anyway.
class NvlinkWithControl final : public Transport {
 public:
  // Ranks take the devices in turn, so that some pairs share one and others do not.
  static Result<std::unique_ptr<Transport>> make(const TransportOptions& options) {
    static std::atomic<int> made{0};
    setenv("UNISONO_EMULATED_DEVICES", "2", 1);
    UNISONO_ASSIGN(auto control, transport::shm::make_transport(options));
    UNISONO_ASSIGN(auto device, sys::cuda::Device::open(made++ % 2));
    UNISONO_ASSIGN(auto nvlink, transport::nvlink::make_transport(*control, std::move(device)));
    return std::unique_ptr<Transport>(
        std::make_unique<NvlinkWithControl>(std::move(control), std::move(nvlink)));
  }
  NvlinkWithControl(std::unique_ptr<Transport> control, std::unique_ptr<Transport> nvlink)
      : control_(std::move(control)), nvlink_(std::move(nvlink)) {}

  std::string_view name() const override { return nvlink_->name(); }
  std::string address() const override { return nvlink_->address(); }
  Result<std::unique_ptr<Connection>> connect(const ConnectionRequest& request) override {
    return nvlink_->connect(request);
  }
  Status progress() override { return nvlink_->progress(); }
  bool is_used_in_this_process() override { return nvlink_->is_used_in_this_process(); }

 private:
  const std::unique_ptr<Transport> control_;
  const std::unique_ptr<Transport> nvlink_;
};

inline Factory nvlink() {
  return {.name = "nvlink",
          .make = NvlinkWithControl::make,
          .across_processes = true,
          .puts_in_place = false,
          .gets = false,
          .links_devices = true};
}

}  // namespace unisono::test
