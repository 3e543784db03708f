#include "engine_reduce/elements.h"

#include "engine/reduce/scaling.h"
#include "engine_reduce/reference.h"

namespace unisono::engine {
namespace {

int mantissa_bits(DataType type) {
  switch (type) {
    case DataType::float16:
      return 10;
    case DataType::bfloat16:
      return 7;
    case DataType::float8_e4m3:
      return 3;
    case DataType::float8_e5m2:
      return 2;
    case DataType::float32:
      return 23;
    default:
      return 52;
  }
}

}  // namespace

std::vector<std::uint64_t> special_values(DataType type) {
  const int width = 8 * static_cast<int>(size_bytes(type));
  const std::uint64_t sign = std::uint64_t{1} << (width - 1);
  std::vector<std::uint64_t> magnitudes = {0, 1, 2, 3, sign - 1, sign - 2};
  if (!is_integer(type)) {
    const int mantissa = mantissa_bits(type);
    const std::uint64_t ulp_field = std::uint64_t{1} << mantissa;
    const std::uint64_t top = (sign - 1) & ~(ulp_field - 1);
    const std::uint64_t one = (top / 2) & ~(ulp_field - 1);
    for (const std::uint64_t centre : {ulp_field, one, one + ulp_field / 2, top}) {
      magnitudes.insert(magnitudes.end(), {centre - 1, centre, centre + 1});
    }
    magnitudes.push_back(top + ulp_field / 2);
  }
  std::vector<std::uint64_t> values;
  for (const std::uint64_t magnitude : magnitudes) {
    values.insert(values.end(), {magnitude, magnitude | sign});
  }
  return values;
}

std::vector<std::uint64_t> mixed_values(DataType type, std::size_t count, std::mt19937_64& random) {
  const std::vector<std::uint64_t> specials = special_values(type);
  std::vector<std::uint64_t> values(count);
  for (std::uint64_t& value : values) {
    value = random() % 2 == 0 ? specials[random() % specials.size()] : random();
  }
  return values;
}

}  // namespace unisono::engine
