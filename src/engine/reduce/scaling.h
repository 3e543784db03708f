// What a reduction does to contributions and to their complete sum, besides combining.
//
// The average of floats is a pre-multiplied sum whose factor is 1 / ranks on every rank. The exact
// partial sums are then in range, but rounded ones may exceed the largest finite number, where they
// become that number: only an infinity that a rank contributed gives an infinity. The average of
// integers is a sum, which wraps around, and is divided when it is complete.
#pragma once

#include <unisono/types.h>

#include "engine/reduce/reduce.h"

namespace unisono::engine {

bool is_integer(DataType type);

struct Scaling {
  bool scales_input = false;    // each contribution is multiplied by `factor` as it is read
  bool divides_result = false;  // the complete sum is divided by the number of ranks
  ScaleFactor factor;
};

// Of one rank, an average is its input as it is.
Scaling scaling_of(ReduceOperation operation, DataType type, int ranks, ScaleFactor pre_multiplier);

}  // namespace unisono::engine
