#include "engine/gpu/arithmetic.h"

#include <bit>

#include "engine/reduce/scaling.h"

namespace unisono::engine::gpu {
namespace {

// Up to so many ranks, where they are a power of two, partial sums of an average never overflow, so
// that they are plain sums. Each multiple i / ranks of the first number out of range, a power of
// two, is a number of the type: bfloat16 has the fewest significant bits, 8. Scaled contributions
// are below 1 / ranks of it, and rounded to nearest, sums of i of them are below i / ranks of it:
// two operands are below numbers of the type, the larger by half a last place of the sum or more.
constexpr int most_halving_ranks = 256;

device::Combine combine_average(DataType type, bool halves) {
  // Integers wrap around, and float8 numbers saturate.
  const bool overflows = !is_integer(type) && size_bytes(type) > 1;
  return overflows && !halves ? device::Combine::average : device::Combine::sum;
}

device::Combine combine_of(ReduceOperation operation, DataType type, bool halves) {
  switch (operation) {
    case ReduceOperation::product:
      return device::Combine::product;
    case ReduceOperation::min:
      return device::Combine::min;
    case ReduceOperation::max:
      return device::Combine::max;
    case ReduceOperation::average:
      return combine_average(type, halves);
    default:
      return device::Combine::sum;
  }
}

}  // namespace

device::Arithmetic arithmetic_of(const plan::Header& header, const Arguments& arguments) {
  Scaling scaling;
  if (is_reduction(header.collective))
    scaling =
        scaling_of(arguments.operation, arguments.type, header.ranks, arguments.pre_multiplier);
  const auto ranks = static_cast<unsigned>(header.ranks);
  const bool halves = scaling.scales_input && arguments.operation == ReduceOperation::average &&
                      header.ranks <= most_halving_ranks && std::has_single_bit(ranks);
  return {
      .type = static_cast<std::uint8_t>(arguments.type),
      .combine = static_cast<std::uint8_t>(combine_of(arguments.operation, arguments.type, halves)),
      .scales_input = scaling.scales_input,
      .element_bytes = static_cast<std::uint8_t>(size_bytes(arguments.type)),
      .halvings = halves ? std::countr_zero(ranks) : 0,
      .integer_factor = scaling.factor.integer,
      .real_factor = scaling.factor.real};
}

}  // namespace unisono::engine::gpu
