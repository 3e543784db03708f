// The kernel of one end of a ring link, played by a test: what kernels load and store is host
// memory as the emulated driver maps it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "device/common.h"
#include "transport/ring/link.h"

namespace unisono::test {

inline constexpr transport::ring::Geometry ring_geometry{.slots = 4, .slot_bytes = 4096};

inline std::shared_ptr<const sys::cuda::Device> ring_device() {
  auto opened = sys::cuda::Device::open(0);
  EXPECT_TRUE(opened.ok()) << opened.error().describe();
  return *opened;
}

template <class T>
T* at(sys::cuda::DeviceAddress address) {
  return reinterpret_cast<T*>(address);
}
inline std::atomic<std::uint64_t>& word(sys::cuda::DeviceAddress address, std::uint64_t index = 0) {
  return at<std::atomic<std::uint64_t>>(address)[index];
}

// As device/sync/link.cuh loads and stores. Between two of its steps others run in `pause`.
class RingKernel {
 public:
  explicit RingKernel(
      const transport::ring::Link& link, std::function<void()> pause = [] {})
      : to_(link.addresses()), pause_(std::move(pause)) {}

  bool can_send() const {
    return sent_ - word(to_.given_back).load(std::memory_order_acquire) < slots();
  }
  bool has_all_back() const {
    return word(to_.given_back).load(std::memory_order_acquire) == sent_;
  }
  void send(std::span<const std::byte> payload, std::uint32_t tag) {
    const std::uint64_t slot = sent_ % slots();
    std::ranges::copy(payload, at<std::byte>(to_.out_slots) + slot * ring_geometry.stride());
    pause_();
    word(to_.out_bytes, slot).store(payload.size(), std::memory_order_relaxed);
    pause_();
    ++sent_;
    word(to_.out_flags, slot).store(device::flag_of(tag, sent_), std::memory_order_release);
  }
  // The next message's tag, once it is there.
  std::optional<std::uint32_t> arrived() const {
    const std::uint64_t flag =
        word(to_.in_flags, received_ % slots()).load(std::memory_order_acquire);
    if (device::number_of(flag) != received_ + 1) return std::nullopt;
    return static_cast<std::uint32_t>(flag >> 32);
  }
  const std::byte* message() const {
    return at<std::byte>(to_.in_slots) + received_ % slots() * ring_geometry.stride();
  }
  void give_back() { word(to_.taken).store(++received_, std::memory_order_release); }

 private:
  static std::uint64_t slots() { return static_cast<std::uint64_t>(ring_geometry.slots); }
  const transport::ring::Link::Addresses to_;
  const std::function<void()> pause_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

}  // namespace unisono::test
