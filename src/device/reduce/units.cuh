// Units of 16 bytes: combined, scaled and divided element by element, for the type and operation of
// a call. These are not template parameters of the kernels: a switch that all threads take alike
// costs a few cycles for each unit, far less than its way over NVLink, and keeps one kernel for
// all.
#pragma once

#include <unisono/types.h>

#include <cstdint>
#include <type_traits>

#include "device/common.h"
#include "device/ptx/packed.cuh"
#include "device/reduce/elements.cuh"

namespace unisono::device {

using Type = DataType;

template <class T>
union Elements {
  uint4 unit;
  T at[unit_bytes / sizeof(T)];
};

template <class Format, class Function>
__device__ __forceinline__ uint4 for_elements(uint4 a, uint4 b, Function function) {
  using T = typename Format::Storage;
  Elements<T> left{a};
  const Elements<T> right{b};
#pragma unroll
  for (int i = 0; i < static_cast<int>(unit_bytes / sizeof(T)); ++i)
    left.at[i] = function(left.at[i], right.at[i]);
  return left.unit;
}

template <class Format, class Operation>
__device__ __forceinline__ uint4 combine_as(uint4 a, uint4 b) {
  using T = typename Format::Storage;
  if constexpr (std::is_same_v<Operation, Sum> && std::is_same_v<Format, Float16>)
    return {ptx::add_halves(a.x, b.x), ptx::add_halves(a.y, b.y), ptx::add_halves(a.z, b.z),
            ptx::add_halves(a.w, b.w)};
  if constexpr (std::is_same_v<Operation, Sum> && std::is_same_v<Format, BFloat16> &&
                ptx::adds_bfloat16s)
    return {ptx::add_bfloat16s(a.x, b.x), ptx::add_bfloat16s(a.y, b.y),
            ptx::add_bfloat16s(a.z, b.z), ptx::add_bfloat16s(a.w, b.w)};
  return for_elements<Format>(
      a, b, [](T x, T y) { return combine_elements(Format(), Operation(), x, y); });
}

template <class Operation>
__device__ uint4 combine_floats(Type type, uint4 a, uint4 b) {
  switch (type) {
    case Type::float16:
      return combine_as<Float16, Operation>(a, b);
    case Type::bfloat16:
      return combine_as<BFloat16, Operation>(a, b);
    case Type::float8_e4m3:
      return combine_as<Float8E4M3, Operation>(a, b);
    case Type::float8_e5m2:
      return combine_as<Float8E5M2, Operation>(a, b);
    case Type::float32:
      return combine_as<Float32, Operation>(a, b);
    default:
      return combine_as<Float64, Operation>(a, b);
  }
}

// Sums and products wrap alike for signed and unsigned.
template <class Operation>
__device__ uint4 combine_wrapping(Type type, uint4 a, uint4 b) {
  switch (type) {
    case Type::int8:
    case Type::uint8:
      return combine_as<Integer<std::uint8_t>, Operation>(a, b);
    case Type::int16:
    case Type::uint16:
      return combine_as<Integer<std::uint16_t>, Operation>(a, b);
    case Type::int32:
    case Type::uint32:
      return combine_as<Integer<std::uint32_t>, Operation>(a, b);
    case Type::int64:
    case Type::uint64:
      return combine_as<Integer<std::uint64_t>, Operation>(a, b);
    default:
      return combine_floats<Operation>(type, a, b);
  }
}

template <class Operation>
__device__ uint4 combine_ordered(Type type, uint4 a, uint4 b) {
  switch (type) {
    case Type::int8:
      return combine_as<Integer<std::int8_t>, Operation>(a, b);
    case Type::uint8:
      return combine_as<Integer<std::uint8_t>, Operation>(a, b);
    case Type::int16:
      return combine_as<Integer<std::int16_t>, Operation>(a, b);
    case Type::uint16:
      return combine_as<Integer<std::uint16_t>, Operation>(a, b);
    case Type::int32:
      return combine_as<Integer<std::int32_t>, Operation>(a, b);
    case Type::uint32:
      return combine_as<Integer<std::uint32_t>, Operation>(a, b);
    case Type::int64:
      return combine_as<Integer<std::int64_t>, Operation>(a, b);
    case Type::uint64:
      return combine_as<Integer<std::uint64_t>, Operation>(a, b);
    default:
      return combine_floats<Operation>(type, a, b);
  }
}

// Of a type whose sums overflow.
__device__ inline uint4 add_bounded(Type type, uint4 a, uint4 b) {
  switch (type) {
    case Type::float16:
      return combine_as<Float16, BoundedSum>(a, b);
    case Type::bfloat16:
      return combine_as<BFloat16, BoundedSum>(a, b);
    case Type::float32:
      return combine_as<Float32, BoundedSum>(a, b);
    default:
      return combine_as<Float64, BoundedSum>(a, b);
  }
}

// a (op) b. A call, so that its code is there once.
__device__ __noinline__ uint4 combine_any(std::uint8_t type, std::uint8_t combine, uint4 a,
                                          uint4 b) {
  const auto as = static_cast<Type>(type);
  switch (static_cast<Combine>(combine)) {
    case Combine::sum:
      return combine_wrapping<Sum>(as, a, b);
    case Combine::product:
      return combine_wrapping<Product>(as, a, b);
    case Combine::min:
      return combine_ordered<Min>(as, a, b);
    case Combine::max:
      return combine_ordered<Max>(as, a, b);
    default:
      return add_bounded(as, a, b);
  }
}

template <class Format, int units>
__device__ __forceinline__ void add_as(uint4 (&a)[units], const uint4 (&b)[units]) {
#pragma unroll
  for (int i = 0; i < units; ++i) a[i] = combine_as<Format, Sum>(a[i], b[i]);
}

// The sums that training is made of are in line.
template <int units>
__device__ __forceinline__ void combine_units(const Arithmetic& arithmetic, uint4 (&a)[units],
                                              const uint4 (&b)[units]) {
  const bool is_sum = static_cast<Combine>(arithmetic.combine) == Combine::sum;
  const auto type = static_cast<Type>(arithmetic.type);
  if (is_sum && type == Type::float32) {
    add_as<Float32>(a, b);
  } else if (is_sum && type == Type::bfloat16) {
    add_as<BFloat16>(a, b);
  } else {
#pragma unroll
    for (int i = 0; i < units; ++i)
      a[i] = combine_any(arithmetic.type, arithmetic.combine, a[i], b[i]);
  }
}

// function(Format()) of the type's.
template <class Function>
__device__ __forceinline__ auto with_format(Type type, Function function) {
  switch (type) {
    case Type::int8:
      return function(Integer<std::int8_t>());
    case Type::uint8:
      return function(Integer<std::uint8_t>());
    case Type::int16:
      return function(Integer<std::int16_t>());
    case Type::uint16:
      return function(Integer<std::uint16_t>());
    case Type::int32:
      return function(Integer<std::int32_t>());
    case Type::uint32:
      return function(Integer<std::uint32_t>());
    case Type::int64:
      return function(Integer<std::int64_t>());
    case Type::uint64:
      return function(Integer<std::uint64_t>());
    case Type::float16:
      return function(Float16());
    case Type::bfloat16:
      return function(BFloat16());
    case Type::float8_e4m3:
      return function(Float8E4M3());
    case Type::float8_e5m2:
      return function(Float8E5M2());
    case Type::float32:
      return function(Float32());
    default:
      return function(Float64());
  }
}

// An element times the factor, rounded to what it is combined in.
template <class T>
__device__ __forceinline__ T scale_one(Integer<T>, T element, const Arithmetic& arithmetic) {
  using Wrapping = std::make_unsigned_t<T>;
  return static_cast<T>(Product::apply(static_cast<Wrapping>(element),
                                       static_cast<Wrapping>(arithmetic.integer_factor)));
}
template <class Format, class T>
__device__ __forceinline__ T scale_one(Format, T element, const Arithmetic& arithmetic) {
  return Format::store(Format::load(element) *
                       static_cast<typename Format::Wide>(arithmetic.real_factor));
}

__device__ __noinline__ uint4 scale_any(const Arithmetic& arithmetic, uint4 a) {
  return with_format(static_cast<Type>(arithmetic.type), [&](auto format) {
    using Format = decltype(format);
    using T = typename Format::Storage;
    return for_elements<Format>(a, a, [&](T x, T) { return scale_one(Format(), x, arithmetic); });
  });
}

// The same where the factor is a power of two, for the sums that training is made of.
template <class Format>
__device__ __forceinline__ uint4 halve(uint4 a, int halvings) {
  if constexpr (std::is_same_v<Format, Float16>) {
    const std::uint32_t both = static_cast<std::uint32_t>(15 - halvings) * 0x04000400U;
    return {ptx::multiply_halves(a.x, both), ptx::multiply_halves(a.y, both),
            ptx::multiply_halves(a.z, both), ptx::multiply_halves(a.w, both)};
  }
  if constexpr (std::is_same_v<Format, BFloat16> && ptx::adds_bfloat16s) {
    const std::uint32_t both = static_cast<std::uint32_t>(127 - halvings) * 0x00800080U;
    return {ptx::multiply_bfloat16s(a.x, both), ptx::multiply_bfloat16s(a.y, both),
            ptx::multiply_bfloat16s(a.z, both), ptx::multiply_bfloat16s(a.w, both)};
  }
  const auto factor = bits_as<float>(static_cast<std::uint32_t>(127 - halvings) << 23);
  using T = typename Format::Storage;
  return for_elements<Format>(a, a,
                              [factor](T x, T) { return Format::store(Format::load(x) * factor); });
}

// An integer's average: the aligned element at `at` becomes itself over `ranks`, rounded towards
// zero; there may be more ranks than one of 8 or 16 bits holds.
template <class T>
__device__ __forceinline__ void divide_element(T* at, int ranks) {
  using Wide = std::conditional_t<sizeof(T) < sizeof(int), int, T>;
  *at = static_cast<T>(static_cast<Wide>(*at) / static_cast<Wide>(ranks));
}
__device__ inline void divide_element(std::uint8_t type, void* at, int ranks) {
  switch (static_cast<Type>(type)) {
    case Type::int8:
      return divide_element(static_cast<std::int8_t*>(at), ranks);
    case Type::uint8:
      return divide_element(static_cast<std::uint8_t*>(at), ranks);
    case Type::int16:
      return divide_element(static_cast<std::int16_t*>(at), ranks);
    case Type::uint16:
      return divide_element(static_cast<std::uint16_t*>(at), ranks);
    case Type::int32:
      return divide_element(static_cast<std::int32_t*>(at), ranks);
    case Type::uint32:
      return divide_element(static_cast<std::uint32_t*>(at), ranks);
    case Type::int64:
      return divide_element(static_cast<std::int64_t*>(at), ranks);
    default:
      return divide_element(static_cast<std::uint64_t*>(at), ranks);
  }
}

}  // namespace unisono::device
