// The loops of every kernel and the table of them, for the instruction set that the including file
// is compiled for. Only kernels_*.cc includes this, and nothing here has external linkage: see
// vectors.h. No template of the standard library is used, for the same reason.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/reduce/float8_sum.h"
#include "engine/reduce/float_formats.h"
#include "engine/reduce/levels.h"

// Operands are equal or apart, so iterations never depend on each other: without this the compiler
// would run a scalar loop for the in-place case.
#if defined(__clang__)
#define UNISONO_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define UNISONO_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace unisono::engine {
namespace {

// An element at any address.
template <class T>
struct [[gnu::packed, gnu::may_alias]] Cell {
  T value;
};

// Stored as computed: integers, and floats whose operation works on their bits.
template <class T>
struct Raw {
  using Storage = T;
  static T encode(T value) { return value; }
};

struct Float32 {
  using Storage = float;
  static float encode(float value) { return value == value ? value : __builtin_nanf(""); }
};

struct Float64 {
  using Storage = double;
  static double encode(double value) { return value == value ? value : __builtin_nan(""); }
};

template <class Element, class Function>
inline void transform(void* destination, const void* a, const void* b, std::size_t count,
                      Function function) {
  using Stored = Cell<typename Element::Storage>;
  auto* out = static_cast<Stored*>(destination);
  const auto* left = static_cast<const Stored*>(a);
  const auto* right = static_cast<const Stored*>(b);
  UNISONO_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < count; ++i) {
    out[i].value = Element::encode(function(left[i].value, right[i].value));
  }
}

// Operations. Integers are unsigned here, which wraps; 8 and 16 bits would promote to signed int.

struct Sum {
  template <class T>
  auto operator()(T a, T b) const {
    return a + b;
  }
  std::uint8_t operator()(std::uint8_t a, std::uint8_t b) const {
    return static_cast<std::uint8_t>(static_cast<unsigned>(a) + b);
  }
  std::uint16_t operator()(std::uint16_t a, std::uint16_t b) const {
    return static_cast<std::uint16_t>(static_cast<unsigned>(a) + b);
  }
};

// The sums of averages (scaling.h), computed as Bits in the integer type of Float's width. The bits
// below those of an infinity are the largest finite number's.
template <class Float, class Bits>
struct WideBoundedSum {
  static constexpr Bits sign = Bits{1} << (8 * sizeof(Bits) - 1);
  static constexpr Bits infinity = __builtin_bit_cast(Bits, static_cast<Float>(__builtin_inff()));
  static bool is_infinite(Bits bits) { return (bits & ~sign) == infinity; }
  Float operator()(Float a, Float b) const {
    const Bits sum = __builtin_bit_cast(Bits, a + b);
    // Without a branch, which could not be vectorised.
    const bool overflows = (int{is_infinite(sum)} & int{!is_infinite(__builtin_bit_cast(Bits, a))} &
                            int{!is_infinite(__builtin_bit_cast(Bits, b))}) != 0;
    return __builtin_bit_cast(Float, sum - Bits{overflows});
  }
};

// The same of narrower floats, in float32; `largest` has the bits of the largest finite number.
template <std::int32_t largest>
struct NarrowBoundedSum {
  static Ints is_finite(Floats value) {
    return (bits_of(value) & float32_magnitude) < float32_infinity;
  }
  Floats operator()(Floats a, Floats b) const {
    const Ints sum = bits_of(a + b);
    const Ints overflows = ((sum & float32_magnitude) > largest) & is_finite(a) & is_finite(b);
    return floats_of(overflows ? ((sum & ~float32_magnitude) | largest) : sum);
  }
};

struct Product {
  template <class T>
  auto operator()(T a, T b) const {
    return a * b;
  }
  std::uint8_t operator()(std::uint8_t a, std::uint8_t b) const {
    return static_cast<std::uint8_t>(static_cast<unsigned>(a) * b);
  }
  std::uint16_t operator()(std::uint16_t a, std::uint16_t b) const {
    return static_cast<std::uint16_t>(static_cast<unsigned>(a) * b);
  }
};

struct IntegerMin {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};

struct IntegerMax {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

// For float32 and float64, computed as Bits in the integer type of their width. A choice by `<` in
// both directions gives equal operands or the two zeros, whose bits then combine: -0 wins a min as
// the union of bits, and loses a max as their intersection.
template <class Float, class Bits>
struct WideMin {
  Float operator()(Float a, Float b) const {
    const Float forward = a < b ? a : b;
    const Float backward = b < a ? b : a;
    const Bits bits = __builtin_bit_cast(Bits, forward) | __builtin_bit_cast(Bits, backward);
    return __builtin_isunordered(a, b) ? Float{__builtin_nanf("")}
                                       : __builtin_bit_cast(Float, bits);
  }
};

template <class Float, class Bits>
struct WideMax {
  Float operator()(Float a, Float b) const {
    const Float forward = a > b ? a : b;
    const Float backward = b > a ? b : a;
    const Bits bits = __builtin_bit_cast(Bits, forward) & __builtin_bit_cast(Bits, backward);
    return __builtin_isunordered(a, b) ? Float{__builtin_nanf("")}
                                       : __builtin_bit_cast(Float, bits);
  }
};

// For the narrower floats, on the stored bits: with the magnitude of negative numbers complemented,
// their order is that of signed integers, -0 below +0 included.
template <class Format>
inline typename Format::Signed ordered(typename Format::Signed bits) {
  using Signed = typename Format::Signed;
  const Signed flip = bits < 0 ? Format::magnitude_mask : Signed{0};
  return static_cast<Signed>(bits ^ flip);
}

template <class Format>
inline bool is_nan(typename Format::Signed bits) {
  return static_cast<typename Format::Signed>(bits & Format::magnitude_mask) >
         Format::largest_ordered;
}

template <class Format, class Choice>
struct Narrow {
  using Signed = typename Format::Signed;
  Signed operator()(Signed a, Signed b) const {
    const Signed chosen = ordered<Format>(Choice()(ordered<Format>(a), ordered<Format>(b)));
    // Without a branch, which could not be vectorised.
    const bool has_nan = (int{is_nan<Format>(a)} | int{is_nan<Format>(b)}) != 0;
    return has_nan ? Format::nan : chosen;
  }
};

template <class Element, class Function>
void combine(void* destination, const void* a, const void* b, std::size_t count) {
  transform<Element>(destination, a, b, count, Function());
}

template <class Format, class Function>
void combine_narrow(void* destination, const void* a, const void* b, std::size_t count) {
  transform_vectors<Format>(destination, a, b, count, Function());
}

template <class T>
void scale_integer(void* destination, const void* source, std::size_t count, ScaleFactor factor) {
  const T wrapped = static_cast<T>(factor.integer);
  transform<Raw<T>>(destination, source, source, count,
                    [wrapped](T a, T) { return Product()(a, wrapped); });
}

template <class Element>
void scale_float(void* destination, const void* source, std::size_t count, ScaleFactor factor) {
  using Float = typename Element::Storage;
  const auto rounded = static_cast<Float>(factor.real);
  transform<Element>(destination, source, source, count,
                     [rounded](Float a, Float) { return a * rounded; });
}

template <class Format>
void scale_narrow(void* destination, const void* source, std::size_t count, ScaleFactor factor) {
  const auto rounded = static_cast<float>(factor.real);
  transform_vectors<Format>(destination, source, source, count,
                            [rounded](Floats a, Floats) { return a * rounded; });
}

// Integers of at most half the significand of Float: |value| / ranks differs from the next integer
// by at least 1 / ranks, far more than the quotient's rounding error, so truncation is exact.
template <class T, class Float, class Truncated>
void divide_integer(void* destination, const void* source, std::size_t count, int ranks) {
  const auto divisor = static_cast<Float>(ranks);
  transform<Raw<T>>(destination, source, source, count, [divisor](T a, T) {
    return static_cast<T>(static_cast<Truncated>(static_cast<Float>(a) / divisor));
  });
}

// As above; the vector units convert signed integers only, so 2^31 is taken off and added again.
// For two ranks and more the quotient fits a signed integer.
void divide_uint32(void* destination, const void* source, std::size_t count, int ranks) {
  if (ranks == 1) {
    __builtin_memmove(destination, source, count * sizeof(std::uint32_t));
    return;
  }
  const auto divisor = static_cast<double>(ranks);
  transform<Raw<std::uint32_t>>(
      destination, source, source, count, [divisor](std::uint32_t a, std::uint32_t) {
        const auto lowered = static_cast<std::int32_t>(a ^ 0x80000000U);
        const double value = static_cast<double>(lowered) + 0x1p31;
        return static_cast<std::uint32_t>(static_cast<std::int32_t>(value / divisor));
      });
}

// x / divisor, by a multiplication. With reciprocal = (2^64 - 1 - e) / divisor, e < divisor, the
// product's high half lies in (x / divisor - 1, x / divisor], so that one correction suffices.
class UnsignedDivisor {
 public:
  explicit UnsignedDivisor(std::uint64_t divisor)
      : divisor_(divisor), reciprocal_(~std::uint64_t{0} / divisor) {}
  std::uint64_t quotient(std::uint64_t x) const {
    __extension__ using Wide = unsigned __int128;
    const auto estimate = static_cast<std::uint64_t>((Wide{x} * reciprocal_) >> 64);
    return estimate + (x - estimate * divisor_ >= divisor_ ? 1 : 0);
  }

 private:
  std::uint64_t divisor_;
  std::uint64_t reciprocal_;
};

void divide_uint64(void* destination, const void* source, std::size_t count, int ranks) {
  const UnsignedDivisor divisor(static_cast<std::uint64_t>(ranks));
  transform<Raw<std::uint64_t>>(
      destination, source, source, count,
      [&divisor](std::uint64_t a, std::uint64_t) { return divisor.quotient(a); });
}

void divide_int64(void* destination, const void* source, std::size_t count, int ranks) {
  const UnsignedDivisor divisor(static_cast<std::uint64_t>(ranks));
  transform<Raw<std::uint64_t>>(
      destination, source, source, count, [&divisor](std::uint64_t a, std::uint64_t) {
        const std::uint64_t negative = -(a >> 63);
        return (divisor.quotient((a ^ negative) - negative) ^ negative) - negative;
      });
}

constexpr int row(DataType type) { return static_cast<int>(type); }

template <class Signed, class Unsigned>
constexpr void add_integers(KernelTable& table, DataType signed_type, DataType unsigned_type) {
  for (const int type : {row(signed_type), row(unsigned_type)}) {
    table.combine[type][0] = combine<Raw<Unsigned>, Sum>;
    table.combine[type][1] = combine<Raw<Unsigned>, Product>;
    table.combine[type][4] = table.combine[type][0];
    table.scale[type] = scale_integer<Unsigned>;
  }
  table.combine[row(signed_type)][2] = combine<Raw<Signed>, IntegerMin>;
  table.combine[row(signed_type)][3] = combine<Raw<Signed>, IntegerMax>;
  table.combine[row(unsigned_type)][2] = combine<Raw<Unsigned>, IntegerMin>;
  table.combine[row(unsigned_type)][3] = combine<Raw<Unsigned>, IntegerMax>;
}

template <class Format>
constexpr void add_narrow(KernelTable& table, DataType type) {
  using Bits = Raw<typename Format::Signed>;
  table.combine[row(type)][0] = combine_narrow<Format, Sum>;
  table.combine[row(type)][1] = combine_narrow<Format, Product>;
  table.combine[row(type)][2] = combine<Bits, Narrow<Format, IntegerMin>>;
  table.combine[row(type)][3] = combine<Bits, Narrow<Format, IntegerMax>>;
  table.combine[row(type)][4] = table.combine[row(type)][0];
  table.scale[row(type)] = scale_narrow<Format>;
}

template <class Element, class Bits>
constexpr void add_wide(KernelTable& table, DataType type) {
  using Float = typename Element::Storage;
  table.combine[row(type)][0] = combine<Element, Sum>;
  table.combine[row(type)][1] = combine<Element, Product>;
  table.combine[row(type)][2] = combine<Raw<Float>, WideMin<Float, Bits>>;
  table.combine[row(type)][3] = combine<Raw<Float>, WideMax<Float, Bits>>;
  table.combine[row(type)][4] = combine<Element, WideBoundedSum<Float, Bits>>;
  table.scale[row(type)] = scale_float<Element>;
}

constexpr KernelTable make_table() {
  KernelTable table{};
  add_integers<std::int8_t, std::uint8_t>(table, DataType::int8, DataType::uint8);
  add_integers<std::int16_t, std::uint16_t>(table, DataType::int16, DataType::uint16);
  add_integers<std::int32_t, std::uint32_t>(table, DataType::int32, DataType::uint32);
  add_integers<std::int64_t, std::uint64_t>(table, DataType::int64, DataType::uint64);
  table.divide[row(DataType::int8)] = divide_integer<std::int8_t, float, std::int32_t>;
  table.divide[row(DataType::uint8)] = divide_integer<std::uint8_t, float, std::int32_t>;
  table.divide[row(DataType::int16)] = divide_integer<std::int16_t, float, std::int32_t>;
  table.divide[row(DataType::uint16)] = divide_integer<std::uint16_t, float, std::int32_t>;
  table.divide[row(DataType::int32)] = divide_integer<std::int32_t, double, std::int32_t>;
  table.divide[row(DataType::uint32)] = divide_uint32;
  table.divide[row(DataType::int64)] = divide_int64;
  table.divide[row(DataType::uint64)] = divide_uint64;

  add_narrow<Float16>(table, DataType::float16);
  table.combine[row(DataType::float16)][4] =
      combine_narrow<Float16, NarrowBoundedSum<0x477fe000>>;  // 65504
  add_narrow<BFloat16>(table, DataType::bfloat16);
  table.combine[row(DataType::bfloat16)][4] =
      combine_narrow<BFloat16, NarrowBoundedSum<0x7f7f0000>>;
  add_narrow<Float8E4M3>(table, DataType::float8_e4m3);
  add_narrow<Float8E5M2>(table, DataType::float8_e5m2);
#if defined(UNISONO_FLOAT8_SUM)
  table.combine[row(DataType::float8_e4m3)][0] = sum_float8<Float8E4M3>;
  table.combine[row(DataType::float8_e5m2)][0] = sum_float8<Float8E5M2>;
  for (const DataType type : {DataType::float8_e4m3, DataType::float8_e5m2})
    table.combine[row(type)][4] = table.combine[row(type)][0];
#endif
  add_wide<Float32, std::uint32_t>(table, DataType::float32);
  add_wide<Float64, std::uint64_t>(table, DataType::float64);
  return table;
}

}  // namespace
}  // namespace unisono::engine
