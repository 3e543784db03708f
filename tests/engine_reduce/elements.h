// Elements of any type as words, in buffers with a poisoned margin on both sides, at any alignment.
#pragma once

#include <unisono/types.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace unisono::engine {

inline constexpr unsigned char poison = 0xa5;
inline constexpr std::size_t margin_bytes = 128;

class Elements {
 public:
  Elements(DataType type, std::size_t count, std::size_t misalignment)
      : size_(size_bytes(type)),
        count_(count),
        offset_(margin_bytes + misalignment),
        bytes_(offset_ + count * size_ + margin_bytes, poison) {}

  void* data() { return bytes_.data() + offset_; }
  std::size_t count() const { return count_; }
  std::uint64_t get(std::size_t i) const {
    std::uint64_t bits = 0;
    std::memcpy(&bits, bytes_.data() + offset_ + i * size_, size_);
    return bits;
  }
  void set(std::size_t i, std::uint64_t bits) {
    std::memcpy(bytes_.data() + offset_ + i * size_, &bits, size_);
  }
  void set_all(const std::vector<std::uint64_t>& values) {
    for (std::size_t i = 0; i < count_; ++i) set(i, values[i]);
  }
  bool margins_intact() const {
    const std::size_t end = offset_ + count_ * size_;
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if ((i < offset_ || i >= end) && bytes_[i] != poison) return false;
    }
    return true;
  }

 private:
  std::size_t size_;
  std::size_t count_;
  std::size_t offset_;
  std::vector<unsigned char> bytes_;
};

// Both zeros, both ones, the smallest and largest of every class, infinities, NaNs with unlike
// payloads and signs; for integers the extremes and their neighbours.
std::vector<std::uint64_t> special_values(DataType type);
// Half special values, half random bits.
std::vector<std::uint64_t> mixed_values(DataType type, std::size_t count, std::mt19937_64& random);

}  // namespace unisono::engine
