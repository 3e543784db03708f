#include "engine/reduce/reduce.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/log.h"
#include "base/settings.h"
#include "engine/reduce/levels.h"

namespace unisono::engine {
namespace {

Level choose_level_by_setting() {
  const std::string& cap = environment_settings().text(Setting::simd);
  const LevelChoice choice = choose_level(cap);
  if (!choice.known) {
    log(LogLevel::warn, "UNISONO_SIMD is \"", cap, "\"; it must be baseline, avx2, avx512 ",
        "or neon. The reductions use ", choice.level.name);
  }
  return choice.level;
}

const Level& active_level() {
  static const Level level = choose_level_by_setting();
  return level;
}

int row(DataType type) { return static_cast<int>(type); }

int column(ReduceOperation operation) {
  if (operation == ReduceOperation::pre_multiplied_sum) operation = ReduceOperation::sum;
  return static_cast<int>(operation);
}

template <class T>
std::int64_t load_integer(const void* element) {
  T value;
  std::memcpy(&value, element, sizeof value);
  return static_cast<std::int64_t>(value);
}

template <class T>
double load_real(const void* element) {
  T value;
  std::memcpy(&value, element, sizeof value);
  return value;
}

// Any narrow float: sign, exponent and mantissa fields of `bits`, whose bias is the usual one.
double narrow_real(unsigned bits, int exponent_bits, int mantissa_bits, bool infinities) {
  const unsigned mantissa = bits & ((1U << mantissa_bits) - 1);
  const unsigned field = (bits >> mantissa_bits) & ((1U << exponent_bits) - 1);
  const bool negative = (bits >> (exponent_bits + mantissa_bits)) != 0;
  const unsigned top_field = (1U << exponent_bits) - 1;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  double magnitude = 0;
  if (field == top_field && infinities) {
    magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  } else if (field == top_field && mantissa == (1U << mantissa_bits) - 1) {
    magnitude = std::numeric_limits<double>::quiet_NaN();
  } else {
    const unsigned significand = field == 0 ? mantissa : mantissa | (1U << mantissa_bits);
    const int exponent = static_cast<int>(field == 0 ? 1 : field) - bias - mantissa_bits;
    magnitude = std::ldexp(significand, exponent);
  }
  return negative ? -magnitude : magnitude;
}

}  // namespace

ReduceFunction reduce_function(DataType type, ReduceOperation operation) {
  return active_level().kernels->combine[row(type)][column(operation)];
}

void scale(DataType type, void* destination, const void* source, std::size_t count,
           ScaleFactor factor) {
  active_level().kernels->scale[row(type)](destination, source, count, factor);
}

void divide(DataType type, void* destination, const void* source, std::size_t count, int ranks) {
  active_level().kernels->divide[row(type)](destination, source, count, ranks);
}

std::string_view simd_level() { return active_level().name; }

ScaleFactor scale_factor(double value) {
  constexpr double limit = 9223372036854775808.0;  // 2^63
  std::int64_t integer = 0;
  if (value >= limit) {
    integer = std::numeric_limits<std::int64_t>::max();
  } else if (value >= -limit) {
    integer = static_cast<std::int64_t>(value);
  } else if (value < -limit) {
    integer = std::numeric_limits<std::int64_t>::min();
  }
  return {value, integer};
}

ScaleFactor scale_factor(DataType type, const void* element) {
  const auto from_integer = [](std::int64_t value) {
    return ScaleFactor{static_cast<double>(value), value};
  };
  switch (type) {
    case DataType::int8:
      return from_integer(load_integer<std::int8_t>(element));
    case DataType::uint8:
      return from_integer(load_integer<std::uint8_t>(element));
    case DataType::int16:
      return from_integer(load_integer<std::int16_t>(element));
    case DataType::uint16:
      return from_integer(load_integer<std::uint16_t>(element));
    case DataType::int32:
      return from_integer(load_integer<std::int32_t>(element));
    case DataType::uint32:
      return from_integer(load_integer<std::uint32_t>(element));
    case DataType::int64:
      return from_integer(load_integer<std::int64_t>(element));
    case DataType::uint64:
      return from_integer(load_integer<std::uint64_t>(element));
    case DataType::float32:
      return scale_factor(load_real<float>(element));
    case DataType::float64:
      return scale_factor(load_real<double>(element));
    default:
      break;
  }
  const auto byte = static_cast<unsigned>(load_integer<std::uint8_t>(element));
  switch (type) {
    case DataType::float8_e4m3:
      return scale_factor(narrow_real(byte, 4, 3, false));
    case DataType::float8_e5m2:
      return scale_factor(narrow_real(byte, 5, 2, true));
    default:
      break;
  }
  const auto half = static_cast<unsigned>(load_integer<std::uint16_t>(element));
  if (type == DataType::bfloat16) return scale_factor(narrow_real(half, 8, 7, true));
  return scale_factor(narrow_real(half, 5, 10, true));
}

}  // namespace unisono::engine
