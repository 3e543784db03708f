// In the place of src/device/ptx/memory.cuh, on a host, where one thread block runs at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace unisono::device::ptx {

template <class T>
T load_polled(const T* at) {
  emulated::before_polling(at);
  return *static_cast<const volatile T*>(at);
}
inline std::uint64_t load_acquire_sys(const std::uint64_t* at) { return load_polled(at); }
inline std::uint64_t load_acquire_gpu(const std::uint64_t* at) { return load_polled(at); }
inline std::uint64_t load_relaxed_sys(const std::uint64_t* at) { return load_polled(at); }
inline std::uint32_t load_relaxed_sys(const std::uint32_t* at) { return load_polled(at); }
inline uint4 load_relaxed_sys(const uint4* at) {
  emulated::before_polling(at);
  return *at;
}

inline void store_release_sys(std::uint64_t* at, std::uint64_t value) { *at = value; }
inline void store_release_sys(std::uint32_t* at, std::uint32_t value) { *at = value; }
inline void store_release_gpu(std::uint64_t* at, std::uint64_t value) { *at = value; }
inline void store_relaxed_sys(std::uint64_t* at, std::uint64_t value) { *at = value; }
inline void store_relaxed_sys(uint4* at, uint4 value) { *at = value; }

inline void fence_sys() {}

inline std::uint64_t add_relaxed_gpu(std::uint64_t* at, std::uint64_t value) {
  return std::exchange(*at, *at + value);
}
inline void reduce_add_gpu(std::uint64_t* at, std::uint64_t value) { *at += value; }
inline void reduce_max_gpu(std::uint64_t* at, std::uint64_t value) { *at = std::max(*at, value); }

}  // namespace unisono::device::ptx
