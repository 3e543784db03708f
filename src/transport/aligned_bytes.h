// Memory aligned to a cache line, taken from the system as it is touched.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

namespace unisono::transport {

class AlignedBytes {
 public:
  static constexpr std::align_val_t alignment{64};

  explicit AlignedBytes(std::size_t bytes)
      : data_(static_cast<std::byte*>(::operator new(bytes, alignment))) {}
  ~AlignedBytes() { ::operator delete(data_, alignment); }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;

  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
};

}  // namespace unisono::transport
