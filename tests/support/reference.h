// What every collective must deliver, computed plainly from all ranks' inputs.
#pragma once

#include <unisono/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace unisono::test {

// Elements as 64-bit integers: small enough to be exact in every type, in any order of reduction.
using Elements = std::vector<std::int64_t>;

struct Problem {
  Collective collective = Collective::all_reduce;
  int ranks = 1;
  int root = 0;
  std::int64_t count = 0;
  ReduceOperation operation = ReduceOperation::sum;
  // all_to_all_v: counts[i][j] elements from rank i to rank j.
  std::vector<std::vector<std::int64_t>> counts;
};

// Elements of a rank's input and output.
std::int64_t input_elements(const Problem& problem, int rank);
std::int64_t output_elements(const Problem& problem, int rank);

// The pre-multiplied sum's scalar of a rank.
std::int64_t multiplier_of(int rank);

// Fresh inputs; values stay so small that sums and products over the ranks fit `type` exactly.
std::vector<Elements> random_inputs(const Problem& problem, DataType type, std::uint64_t seed);

// The output of every rank; empty where the collective defines none.
std::vector<Elements> expected_outputs(const Problem& problem, const std::vector<Elements>& inputs);

// To and from memory of `type`.
std::vector<std::byte> encode(const Elements& elements, DataType type);
Elements decode(const std::byte* data, std::int64_t elements, DataType type);

}  // namespace unisono::test
