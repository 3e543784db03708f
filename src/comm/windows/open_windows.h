// This rank's memory of each window that is open, by the window's number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

namespace unisono::comm {

class OpenWindows {
 public:
  void open(std::uint32_t window, std::span<std::byte> memory) { memory_[window] = memory; }
  void close(std::uint32_t window) { memory_.erase(window); }
  // The bytes from `offset` on; nullptr if the window is closed or smaller.
  std::byte* find(std::uint32_t window, std::uint64_t offset, std::uint64_t bytes) const {
    const auto found = memory_.find(window);
    if (found == memory_.end()) return nullptr;
    const std::span<std::byte> all = found->second;
    if (offset > all.size() || bytes > all.size() - offset) return nullptr;
    return all.data() + offset;
  }

 private:
  std::map<std::uint32_t, std::span<std::byte>> memory_;
};

}  // namespace unisono::comm
