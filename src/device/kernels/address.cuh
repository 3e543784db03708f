// Addresses in what the host gives a kernel.
#pragma once

#include <cstdint>

namespace unisono::device {

template <class T>
__device__ __forceinline__ T* at_address(std::uint64_t address) {
  return reinterpret_cast<T*>(address);
}

}  // namespace unisono::device
