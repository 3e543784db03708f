// A hash of numbers, one after another.
#pragma once

#include <cstdint>

namespace unisono::simulate {

class Hash {
 public:
  Hash& add(std::uint64_t value) {
    state_ = (state_ ^ value) * 0x9e3779b97f4a7c15;
    state_ ^= state_ >> 32;
    return *this;
  }
  Hash& add(std::int64_t value) { return add(static_cast<std::uint64_t>(value)); }
  Hash& add(int value) { return add(static_cast<std::uint64_t>(value)); }
  std::uint64_t get() const { return state_; }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325;
};

}  // namespace unisono::simulate
