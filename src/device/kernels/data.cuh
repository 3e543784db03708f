// What a specialised kernel can do with the data of a call, in words of 8 bytes or units of 16: any
// operation, or only the common ones. A kernel runs its code once, so short code is fast.
#pragma once

#include <cstdint>
#include <type_traits>

#include "device/all_pairs.h"
#include "device/copy/local.cuh"
#include "device/reduce/units.cuh"

namespace unisono::device {

// At any alignment, cut short by the end of the data, scaled, of every type and operation.
struct AnyData {
  using Sums = AnyData;
  __device__ static std::uint64_t load_word(const Arithmetic& arithmetic, const Byte* at,
                                            std::int64_t bytes) {
    const std::uint64_t word = device::load_word(at, bytes);
    if (arithmetic.scales_input == 0) return word;
    return low_word(scale_any(arithmetic, unit_of(word, 0)));
  }
  __device__ static uint4 load_unit(const Arithmetic& arithmetic, const Byte* at,
                                    std::int64_t bytes) {
    const uint4 unit = device::load_unit(at, bytes);
    return arithmetic.scales_input == 0 ? unit : scale_any(arithmetic, unit);
  }
  __device__ static void store_word(Byte* at, std::uint64_t word, std::int64_t bytes) {
    device::store_word(at, word, bytes);
  }
  __device__ static void store_unit(Byte* at, uint4 unit, std::int64_t bytes) {
    device::store_unit(at, unit, bytes);
  }
  template <int units>
  __device__ static void combine(const Arithmetic& arithmetic, uint4 (&a)[units],
                                 const uint4 (&b)[units]) {
    combine_units<units>(arithmetic, a, b);
  }
  // What loading has left to do: nothing.
  template <int units>
  __device__ static void scale_loaded(const Arithmetic&, uint4 (&)[units]) {}
};

template <class Format>
struct PlainSums;

// Whole and aligned, and sums of one type; averages of 2 and 4 ranks.
template <class Format>
struct PlainData {
  using Element = Format;
  using Sums = PlainSums<Format>;
  __device__ static std::uint64_t load_word(const Arithmetic&, const Byte* at, std::int64_t bytes) {
    return bytes > 0 ? *reinterpret_cast<const std::uint64_t*>(at) : 0;
  }
  __device__ static uint4 load_unit(const Arithmetic&, const Byte* at, std::int64_t bytes) {
    return bytes > 0 ? *reinterpret_cast<const uint4*>(at) : uint4{};
  }
  __device__ static void store_word(Byte* at, std::uint64_t word, std::int64_t bytes) {
    if (bytes > 0) *reinterpret_cast<std::uint64_t*>(at) = word;
  }
  __device__ static void store_unit(Byte* at, uint4 unit, std::int64_t bytes) {
    if (bytes > 0) *reinterpret_cast<uint4*>(at) = unit;
  }
  template <int units>
  __device__ static void combine(const Arithmetic&, uint4 (&a)[units], const uint4 (&b)[units]) {
#pragma unroll
    for (int i = 0; i < units; ++i) a[i] = combine_as<Format, Sum>(a[i], b[i]);
  }
  // Not a part of loading, so that loads that follow need not wait.
  template <int units>
  __device__ static void scale_loaded(const Arithmetic& arithmetic, uint4 (&inputs)[units]) {
    if (arithmetic.halvings == 0) return;
#pragma unroll
    for (int i = 0; i < units; ++i) inputs[i] = halve<Format>(inputs[i], arithmetic.halvings);
  }
};

// The same without averages: code is faster without the question.
template <class Format>
struct PlainSums : PlainData<Format> {
  template <int units>
  __device__ static void scale_loaded(const Arithmetic&, uint4 (&)[units]) {}
};

template <DataKind kind>
struct DataOfKind;
template <>
struct DataOfKind<DataKind::any> {
  using Data = AnyData;
};
template <>
struct DataOfKind<DataKind::plain> {
  using Data = PlainSums<Float32>;
};
template <>
struct DataOfKind<DataKind::float16> {
  using Data = PlainData<Float16>;
};
template <>
struct DataOfKind<DataKind::bfloat16> {
  using Data = PlainData<BFloat16>;
};
template <>
struct DataOfKind<DataKind::float32> {
  using Data = PlainData<Float32>;
};
// As a row of kernel_list.h says.
template <DataKind kind>
using DataOf = typename DataOfKind<kind>::Data;

// Runs a call with the shortest code that does it: run(Data{}).
template <class Data, class Run>
__device__ __forceinline__ void run_with(const Arithmetic& arithmetic, const Run& run) {
  if constexpr (!std::is_same_v<Data, typename Data::Sums>) {
    if (arithmetic.scales_input != 0) return run(Data{});
  }
  run(typename Data::Sums{});
}

}  // namespace unisono::device
