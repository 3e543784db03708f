// Single elements: how each type is read, combined and stored, bit for bit as src/engine/reduce
// does it on the host (its reduce.h has the rules).
#pragma once

#include <cstdint>
#include <type_traits>

#include "device/ptx/convert.cuh"

namespace unisono::device {

template <class To, class From>
__device__ __forceinline__ To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

// Every format: Storage; Wide, in which it is combined; load; store (to nearest even, every NaN
// becomes the canonical one); nan; infinity, where sums overflow to it.
template <class T>
struct Integer {
  using Storage = T;
};

struct Float32 {
  using Storage = std::uint32_t;
  using Wide = float;
  static constexpr Storage nan = 0x7fc00000U;
  static constexpr Storage infinity = 0x7f800000U;
  __device__ static float load(Storage bits) { return bits_as<float>(bits); }
  __device__ static Storage store(float value) {
    return value == value ? bits_as<Storage>(value) : nan;
  }
};

struct Float64 {
  using Storage = std::uint64_t;
  using Wide = double;
  static constexpr Storage nan = 0x7ff8000000000000ULL;
  static constexpr Storage infinity = 0x7ff0000000000000ULL;
  __device__ static double load(Storage bits) { return bits_as<double>(bits); }
  __device__ static Storage store(double value) {
    return value == value ? bits_as<Storage>(value) : nan;
  }
};

struct Float16 {
  using Storage = std::uint16_t;
  using Wide = float;
  static constexpr Storage nan = 0x7e00;
  static constexpr Storage infinity = 0x7c00;
  __device__ static float load(Storage bits) { return ptx::float_of_half(bits); }
  __device__ static Storage store(float value) {
    return value == value ? ptx::half_of_float(value) : nan;
  }
};

struct BFloat16 {
  using Storage = std::uint16_t;
  using Wide = float;
  static constexpr Storage nan = 0x7fc0;
  static constexpr Storage infinity = 0x7f80;
  __device__ static float load(Storage bits) {
    return bits_as<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  __device__ static Storage store(float value) {
    return value == value ? ptx::bfloat16_of_float(value) : nan;
  }
};

// A sign bit, `exponent_bits`, `mantissa_bits`. What is larger than the largest finite number is
// stored as that.
template <int exponent_bits, int mantissa_bits, std::uint32_t largest, std::uint32_t first_nan,
          std::uint32_t infinity>
struct Float8 {
  using Storage = std::uint8_t;
  using Wide = float;
  static constexpr Storage nan = 0x7f;
  static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  static constexpr int dropped = 23 - mantissa_bits;

  __device__ static float load(Storage bits) {
    const std::uint32_t magnitude = bits & 0x7fU;
    const std::uint32_t sign = (bits & 0x80U) << 24;
    // The fields in the place of float32's, then moved from its bias to this one's: exact also for
    // subnormals.
    const float scaled = bits_as<float>(magnitude << dropped) *
                         bits_as<float>(static_cast<std::uint32_t>(254 - bias) << 23);
    std::uint32_t wide = bits_as<std::uint32_t>(scaled);
    if (magnitude == infinity) wide = 0x7f800000U;
    if (magnitude >= first_nan) wide = Float32::nan;
    return bits_as<float>(wide | sign);
  }
  __device__ static Storage store(float value) {
    if (!(value == value)) return nan;
    const std::uint32_t bits = bits_as<std::uint32_t>(value);
    const float limit = load(static_cast<Storage>(largest));
    const float magnitude = fminf(bits_as<float>(bits & 0x7fffffffU), limit);
    // Adding a power of two whose last place is that of the result rounds to nearest even there; a
    // subnormal's last place is that of the smallest normal number.
    constexpr std::uint32_t smallest_normal = static_cast<std::uint32_t>(128 - bias) << 23;
    const std::uint32_t own = bits_as<std::uint32_t>(magnitude) & 0x7f800000U;
    const std::uint32_t exponent = own > smallest_normal ? own : smallest_normal;
    const std::uint32_t magic = exponent + (static_cast<std::uint32_t>(dropped) << 23);
    const std::uint32_t significand =
        bits_as<std::uint32_t>(magnitude + bits_as<float>(magic)) - magic;
    // The leading one of the significand carries into the exponent field.
    const std::uint32_t rounded = significand + ((exponent - smallest_normal) >> dropped);
    return static_cast<Storage>(rounded | (bits >> 24 & 0x80U));
  }
};
using Float8E4M3 = Float8<4, 3, 0x7e, 0x7f, 0xff>;
using Float8E5M2 = Float8<5, 2, 0x7b, 0x7d, 0x7c>;

struct Sum {
  template <class T>
  __device__ static T apply(T a, T b) {
    return static_cast<T>(a + b);
  }
};
// Of an average: see Combine.
struct BoundedSum {};
struct Product {
  template <class T>
  __device__ static T apply(T a, T b) {
    // Two of 16 bits would be multiplied as int, which does not wrap.
    using Wide = std::common_type_t<T, unsigned>;
    return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
  }
};
struct Min {
  template <class T>
  __device__ static bool takes_first(T a, T b, bool a_is_negative) {
    return a < b || (a == b && a_is_negative);
  }
};
struct Max {
  template <class T>
  __device__ static bool takes_first(T a, T b, bool a_is_negative) {
    return a > b || (a == b && !a_is_negative);
  }
};

// Integers wrap: unsigned in sums and products.
template <class T, class Operation>
__device__ __forceinline__ T combine_elements(Integer<T>, Operation, T a, T b) {
  return Operation::apply(a, b);
}
template <class T>
__device__ __forceinline__ T combine_elements(Integer<T>, Min, T a, T b) {
  return a < b ? a : b;
}
template <class T>
__device__ __forceinline__ T combine_elements(Integer<T>, Max, T a, T b) {
  return a < b ? b : a;
}
template <class Format, class Operation, class T>
__device__ __forceinline__ T combine_elements(Format, Operation, T a, T b) {
  return Format::store(Operation::apply(Format::load(a), Format::load(b)));
}
// The bits below those of an infinity are the largest finite number's.
template <class Format, class T>
__device__ __forceinline__ T combine_elements(Format format, BoundedSum, T a, T b) {
  constexpr T sign = static_cast<T>(T{1} << (8 * sizeof(T) - 1));
  const auto is_infinite = [](T bits) {
    return static_cast<T>(bits & static_cast<T>(~sign)) == Format::infinity;
  };
  const T sum = combine_elements(format, Sum(), a, b);
  return is_infinite(sum) && !is_infinite(a) && !is_infinite(b) ? static_cast<T>(sum - 1) : sum;
}
// A choice among stored bits, so that e5m2's infinities pass; -0 is below +0.
template <class Format, class Choice, class T>
__device__ __forceinline__ T choose_element(Format, Choice, T a, T b) {
  const auto left = Format::load(a);
  const auto right = Format::load(b);
  if (!(left == left) || !(right == right)) return Format::nan;
  return Choice::takes_first(left, right, (a >> (8 * sizeof(T) - 1)) != 0) ? a : b;
}
template <class Format, class T>
__device__ __forceinline__ T combine_elements(Format format, Min, T a, T b) {
  return choose_element(format, Min(), a, b);
}
template <class Format, class T>
__device__ __forceinline__ T combine_elements(Format format, Max, T a, T b) {
  return choose_element(format, Max(), a, b);
}

}  // namespace unisono::device
