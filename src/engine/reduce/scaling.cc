#include "engine/reduce/scaling.h"

namespace unisono::engine {

bool is_integer(DataType type) { return type <= DataType::uint64; }

Scaling scaling_of(ReduceOperation operation, DataType type, int ranks,
                   ScaleFactor pre_multiplier) {
  if (operation == ReduceOperation::pre_multiplied_sum)
    return {.scales_input = true, .factor = pre_multiplier};
  if (operation != ReduceOperation::average || ranks == 1) return {};
  if (is_integer(type)) return {.divides_result = true};
  return {.scales_input = true, .factor = {.real = 1.0 / ranks}};
}

}  // namespace unisono::engine
