#include "engine_reduce/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/reduce/scaling.h"

namespace unisono::engine {
namespace {

struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool infinities;
  bool saturates;
  std::uint64_t nan;
};

Format format_of(DataType type) {
  switch (type) {
    case DataType::float16:
      return {5, 10, true, false, 0x7e00};
    case DataType::bfloat16:
      return {8, 7, true, false, 0x7fc0};
    case DataType::float8_e4m3:
      return {4, 3, false, true, 0x7f};
    default:
      return {5, 2, true, true, 0x7f};
  }
}

double decode(const Format& format, std::uint64_t bits) {
  const auto mantissa = static_cast<double>(bits & ((1U << format.mantissa_bits) - 1));
  const int top = (1 << format.exponent_bits) - 1;
  const int field = static_cast<int>(bits >> format.mantissa_bits) & top;
  const bool negative = ((bits >> (format.mantissa_bits + format.exponent_bits)) & 1U) != 0;
  const double one = std::ldexp(1.0, format.mantissa_bits);
  const int bias = top / 2;
  double value = std::ldexp(field == 0 ? mantissa : one + mantissa,
                            (field == 0 ? 1 : field) - bias - format.mantissa_bits);
  if (field == top && format.infinities) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::nan("");
  } else if (field == top && mantissa == one - 1) {
    value = std::nan("");
  }
  return negative ? -value : value;
}

std::uint64_t encode(const Format& format, float value) {
  if (std::isnan(value)) return format.nan;
  const int top = (1 << format.exponent_bits) - 1;
  const int bias = top / 2;
  const std::uint64_t infinity = static_cast<std::uint64_t>(top) << format.mantissa_bits;
  const std::uint64_t largest =
      format.infinities ? infinity - 1 : (infinity | ((1U << format.mantissa_bits) - 1)) - 1;
  const std::uint64_t overflow = format.saturates ? largest : infinity;
  const std::uint64_t sign = static_cast<std::uint64_t>(std::signbit(value))
                             << (format.exponent_bits + format.mantissa_bits);
  const double magnitude = std::fabs(static_cast<double>(value));
  if (std::isinf(magnitude)) return sign | overflow;
  int exponent = 1 - bias;
  if (magnitude > 0) exponent = std::max(exponent, std::ilogb(magnitude));
  const double units = std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
  // units counts from 0 in the subnormals; each exponent above adds one binade of codes.
  const std::uint64_t code =
      static_cast<std::uint64_t>(units) +
      (static_cast<std::uint64_t>(exponent - 1 + bias) << format.mantissa_bits);
  return sign | (code > largest ? overflow : code);
}

std::uint64_t bits_mask(DataType type) {
  return size_bytes(type) == 8 ? ~std::uint64_t{0}
                               : (std::uint64_t{1} << (8 * size_bytes(type))) - 1;
}

std::int64_t sign_extended(DataType type, std::uint64_t bits) {
  const int shift = 64 - 8 * static_cast<int>(size_bytes(type));
  return static_cast<std::int64_t>(bits << shift) >> shift;
}

template <class Float>
Float ordered_choice(bool want_min, Float a, Float b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<Float>::quiet_NaN();
  const bool a_below = a < b || (a == b && std::signbit(a));
  return a_below == want_min ? a : b;
}

template <class Float>
Float combine_float(ReduceOperation operation, Float a, Float b) {
  switch (operation) {
    case ReduceOperation::sum:
      return a + b;
    case ReduceOperation::product:
      return a * b;
    default:
      return ordered_choice(operation == ReduceOperation::min, a, b);
  }
}

std::uint64_t combine_integer(DataType type, ReduceOperation operation, std::uint64_t a,
                              std::uint64_t b) {
  const bool a_below =
      is_signed_integer(type) ? sign_extended(type, a) < sign_extended(type, b) : a < b;
  switch (operation) {
    case ReduceOperation::sum:
      return (a + b) & bits_mask(type);
    case ReduceOperation::product:
      return (a * b) & bits_mask(type);
    case ReduceOperation::min:
      return a_below ? a : b;
    default:
      return a_below ? b : a;
  }
}

std::uint64_t canonical(float value) {
  return std::isnan(value) ? 0x7fc00000U : std::bit_cast<std::uint32_t>(value);
}
std::uint64_t canonical(double value) {
  return std::isnan(value) ? 0x7ff8000000000000U : std::bit_cast<std::uint64_t>(value);
}

float as_float(std::uint64_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
}

double real_of(DataType type, std::uint64_t bits) {
  if (type == DataType::float64) return std::bit_cast<double>(bits);
  if (type == DataType::float32) return as_float(bits);
  return decode(format_of(type), bits);
}

std::uint64_t largest_finite(DataType type) {
  switch (type) {
    case DataType::float16:
      return 0x7bff;
    case DataType::bfloat16:
      return 0x7f7f;
    case DataType::float32:
      return 0x7f7fffff;
    default:
      return 0x7fefffffffffffff;
  }
}

std::uint64_t reference_bounded_sum(DataType type, std::uint64_t a, std::uint64_t b) {
  const std::uint64_t sum = reference_combine(type, ReduceOperation::sum, a, b);
  if (is_integer(type) || !std::isinf(real_of(type, sum))) return sum;
  if (std::isinf(real_of(type, a)) || std::isinf(real_of(type, b))) return sum;
  const bool is_negative = real_of(type, sum) < 0;
  return largest_finite(type) | static_cast<std::uint64_t>(is_negative)
                                    << (8 * size_bytes(type) - 1);
}

// Applies `function`, given for float and double, in the type's accumulate type.
template <class Function>
std::uint64_t map_float(DataType type, std::uint64_t a, Function function) {
  if (type == DataType::float64) return canonical(function(std::bit_cast<double>(a)));
  if (type == DataType::float32) return canonical(function(as_float(a)));
  const Format format = format_of(type);
  return encode(format, function(static_cast<float>(decode(format, a))));
}

}  // namespace

bool is_signed_integer(DataType type) {
  return type == DataType::int8 || type == DataType::int16 || type == DataType::int32 ||
         type == DataType::int64;
}

std::uint64_t reference_combine(DataType type, ReduceOperation operation, std::uint64_t a,
                                std::uint64_t b) {
  if (operation == ReduceOperation::average) return reference_bounded_sum(type, a, b);
  if (is_integer(type)) return combine_integer(type, operation, a, b);
  if (type == DataType::float64) {
    return canonical(combine_float(operation, std::bit_cast<double>(a), std::bit_cast<double>(b)));
  }
  if (type == DataType::float32) {
    return canonical(combine_float(operation, as_float(a), as_float(b)));
  }
  const Format format = format_of(type);
  const auto left = static_cast<float>(decode(format, a));
  const auto right = static_cast<float>(decode(format, b));
  if (operation == ReduceOperation::min || operation == ReduceOperation::max) {
    if (std::isnan(left) || std::isnan(right)) return format.nan;
    // A choice stores an operand unchanged: infinities of e5m2 do not saturate.
    const float chosen = ordered_choice(operation == ReduceOperation::min, left, right);
    const bool is_left = std::bit_cast<std::uint32_t>(chosen) == std::bit_cast<std::uint32_t>(left);
    return is_left ? a : b;
  }
  return encode(format, combine_float(operation, left, right));
}

std::uint64_t reference_scale(DataType type, std::uint64_t a, double real, std::int64_t integer) {
  if (is_integer(type)) return (a * static_cast<std::uint64_t>(integer)) & bits_mask(type);
  return map_float(type, a,
                   [real](auto value) { return value * static_cast<decltype(value)>(real); });
}

std::uint64_t reference_divide(DataType type, std::uint64_t a, int ranks) {
  if (!is_signed_integer(type)) return a / static_cast<std::uint64_t>(ranks);
  return static_cast<std::uint64_t>(sign_extended(type, a) / ranks) & bits_mask(type);
}

}  // namespace unisono::engine
