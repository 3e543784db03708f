// Calls on device copies of their buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/try.h"
#include "support/gpu_cluster.h"
#include "support/ranks.h"

namespace unisono::test {

// Device memory that stands for host memory.
class DeviceCopy {
 public:
  DeviceCopy(std::shared_ptr<const sys::cuda::Device> device, std::span<std::byte> host)
      : device_(std::move(device)), host_(host) {}
  Status upload() {
    UNISONO_ASSIGN(memory_, sys::cuda::Memory::allocate(device_, host_.size() + 1));
    return device_->upload(memory_.address(), host_.data(), host_.size());
  }
  Status download() const {
    return device_->copy(reinterpret_cast<sys::cuda::DeviceAddress>(host_.data()),
                         memory_.address(), host_.size());
  }
  bool holds(const void* data) const {
    const auto* byte = static_cast<const std::byte*>(data);
    return !host_.empty() && byte >= host_.data() && byte <= host_.data() + host_.size();
  }
  void* device_address(const void* data) const {
    return reinterpret_cast<void*>(
        memory_.address() +
        static_cast<std::uint64_t>(static_cast<const std::byte*>(data) - host_.data()));
  }

 private:
  std::shared_ptr<const sys::cuda::Device> device_;
  std::span<std::byte> host_;
  sys::cuda::Memory memory_;
};

// Makes the call on the stream, on device copies of its buffers. The stream outlives it.
CheckedCall::Run on(const TestStream& stream);

}  // namespace unisono::test
