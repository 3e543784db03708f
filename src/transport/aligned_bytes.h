// Memory aligned to a cache line, taken from the system as it is touched.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

namespace unisono::transport {

class AlignedBytes {
 public:
  static constexpr std::align_val_t alignment{64};

  AlignedBytes() = default;
  explicit AlignedBytes(std::size_t bytes) { reserve(bytes); }
  ~AlignedBytes() { ::operator delete(data_, alignment); }
  AlignedBytes(AlignedBytes&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  AlignedBytes& operator=(AlignedBytes&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  // Makes it that large if it is smaller; its content is then lost.
  void reserve(std::size_t bytes) {
    if (bytes <= bytes_) return;
    // Empty where there is no memory for more.
    bytes_ = 0;
    ::operator delete(std::exchange(data_, nullptr), alignment);
    data_ = static_cast<std::byte*>(::operator new(bytes, alignment));
    bytes_ = bytes;
  }
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace unisono::transport
