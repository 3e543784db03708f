#include "support/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <stdexcept>

namespace unisono::test {
namespace {

struct FloatFormat {
  int mantissa_bits;
  int exponent_bits;
};

bool is_integer_type(DataType type) { return type <= DataType::uint64; }

FloatFormat format_of(DataType type) {
  switch (type) {
    case DataType::float16:
      return {10, 5};
    case DataType::bfloat16:
      return {7, 8};
    case DataType::float8_e4m3:
      return {3, 4};
    case DataType::float8_e5m2:
      return {2, 5};
    case DataType::float32:
      return {23, 8};
    default:
      return {52, 11};
  }
}

// Exact for whole numbers of few bits: sign, biased exponent, fraction.
std::uint64_t encode_float(std::int64_t value, FloatFormat format) {
  const int bits = 1 + format.exponent_bits + format.mantissa_bits;
  if (value == 0) return 0;
  const std::uint64_t magnitude = static_cast<std::uint64_t>(value < 0 ? -value : value);
  int exponent = 0;
  while ((magnitude >> (exponent + 1)) != 0) ++exponent;
  const std::uint64_t fraction = magnitude - (std::uint64_t{1} << exponent);
  if (exponent > format.mantissa_bits &&
      (fraction & ((std::uint64_t{1} << (exponent - format.mantissa_bits)) - 1)) != 0)
    throw std::logic_error("the test's value is not exact in this type");
  const std::uint64_t mantissa = exponent <= format.mantissa_bits
                                     ? fraction << (format.mantissa_bits - exponent)
                                     : fraction >> (exponent - format.mantissa_bits);
  const std::uint64_t bias = (std::uint64_t{1} << (format.exponent_bits - 1)) - 1;
  return (value < 0 ? std::uint64_t{1} << (bits - 1) : 0) |
         (static_cast<std::uint64_t>(exponent) + bias) << format.mantissa_bits | mantissa;
}

// Whole numbers only; anything else becomes a number that no test expects.
std::int64_t decode_float(std::uint64_t code, FloatFormat format) {
  constexpr std::int64_t unexpected = -987654321;
  const int bits = 1 + format.exponent_bits + format.mantissa_bits;
  const bool negative = (code >> (bits - 1)) & 1;
  const std::uint64_t exponent =
      (code >> format.mantissa_bits) & ((std::uint64_t{1} << format.exponent_bits) - 1);
  const std::uint64_t mantissa = code & ((std::uint64_t{1} << format.mantissa_bits) - 1);
  if (exponent == 0) return mantissa == 0 ? 0 : unexpected;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const double value =
      std::ldexp(1.0 + std::ldexp(static_cast<double>(mantissa), -format.mantissa_bits),
                 static_cast<int>(exponent) - bias);
  if (!(value < 1e15) || value != std::floor(value)) return unexpected;
  return static_cast<std::int64_t>(negative ? -value : value);
}

std::int64_t block_start(const std::vector<std::int64_t>& counts, int until) {
  std::int64_t sum = 0;
  for (int i = 0; i < until; ++i) sum += counts[static_cast<std::size_t>(i)];
  return sum;
}

std::int64_t combine(ReduceOperation operation, std::int64_t a, std::int64_t b) {
  switch (operation) {
    case ReduceOperation::product:
      return a * b;
    case ReduceOperation::min:
      return std::min(a, b);
    case ReduceOperation::max:
      return std::max(a, b);
    default:
      return a + b;
  }
}

Elements reduce_all(const Problem& problem, const std::vector<Elements>& inputs) {
  Elements result = inputs[0];
  if (problem.operation == ReduceOperation::pre_multiplied_sum)
    for (auto& element : result) element *= multiplier_of(0);
  for (int rank = 1; rank < problem.ranks; ++rank)
    for (std::size_t i = 0; i < result.size(); ++i) {
      std::int64_t term = inputs[static_cast<std::size_t>(rank)][i];
      if (problem.operation == ReduceOperation::pre_multiplied_sum) term *= multiplier_of(rank);
      result[i] = combine(problem.operation, result[i], term);
    }
  if (problem.operation == ReduceOperation::average)
    for (auto& element : result) element /= problem.ranks;
  return result;
}

// Whether a float type holds `value`, a multiple of `ranks`, and scaling makes the quotient of it.
bool scales_exactly(DataType type, std::int64_t value, std::int64_t ranks) {
  if (type == DataType::float64)
    return static_cast<double>(value) * (1.0 / static_cast<double>(ranks)) ==
           static_cast<double>(value / ranks);
  if (type == DataType::float32)
    return static_cast<float>(value) * static_cast<float>(1.0 / static_cast<double>(ranks)) ==
           static_cast<float>(value / ranks);
  const auto magnitude = static_cast<std::uint64_t>(value);
  return value == 0 ||
         magnitude >> std::countr_zero(magnitude) >> (format_of(type).mantissa_bits + 1) == 0;
}

void draw_average(DataType type, std::mt19937_64& random, std::span<std::int64_t> values) {
  const auto ranks = static_cast<std::int64_t>(values.size());
  const auto multiple = [&](std::int64_t of) {
    return scales_exactly(type, of * ranks, ranks) ? of * ranks : 0;
  };
  if (size_bytes(type) >= 4)
    for (auto& value : values) value = multiple(static_cast<std::int64_t>(random() % 100));
  else
    for (int i = 0; i < 2; ++i) values[random() % values.size()] = multiple(1);
}

// One element of all ranks: few ones among zeros, so that every partial sum is exact in two bits
// of fraction; a product has few twos. An average of integers sums to a multiple of the ranks; one
// of floats has multiples of them.
void draw(const Problem& problem, DataType type, std::mt19937_64& random,
          std::span<std::int64_t> values) {
  const std::size_t ranks = values.size();
  std::ranges::fill(values, 0);
  const bool wide = size_bytes(type) >= 4;
  switch (problem.operation) {
    case ReduceOperation::product:
      std::fill(values.begin(), values.end(), 1);
      for (int i = 0; i < 3; ++i) values[random() % ranks] = 2;
      break;
    case ReduceOperation::average: {
      if (!is_integer_type(type)) {
        draw_average(type, random, values);
        break;
      }
      const unsigned levels = wide ? 100 : ranks < 8 ? 2 : 1;
      const auto level = static_cast<std::int64_t>(random() % levels);
      std::fill(values.begin(), values.end(), level);
      if (!wide && type != DataType::int8) break;
      if (ranks < 2 || level == 0) break;
      const std::size_t a = random() % ranks, b = random() % ranks;
      values[a] += 1;
      values[b] -= 1;
      break;
    }
    default:
      if (wide)
        for (auto& value : values) value = static_cast<std::int64_t>(random() % 1000);
      else
        for (int i = 0; i < 2; ++i) values[random() % ranks] = 1 + static_cast<std::int64_t>(i);
  }
}

}  // namespace

std::int64_t multiplier_of(int rank) { return rank % 2 == 0 ? 2 : 1; }

std::int64_t input_elements(const Problem& problem, int rank) {
  switch (problem.collective) {
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return problem.ranks * problem.count;
    case Collective::scatter:
      return rank == problem.root ? problem.ranks * problem.count : 0;
    case Collective::broadcast:
      return rank == problem.root ? problem.count : 0;
    case Collective::all_to_all_v:
      return block_start(problem.counts[static_cast<std::size_t>(rank)], problem.ranks);
    case Collective::barrier:
      return 0;
    default:
      return problem.count;
  }
}

std::int64_t output_elements(const Problem& problem, int rank) {
  switch (problem.collective) {
    case Collective::all_gather:
    case Collective::all_to_all:
      return problem.ranks * problem.count;
    case Collective::gather:
      return rank == problem.root ? problem.ranks * problem.count : 0;
    case Collective::reduce:
      return rank == problem.root ? problem.count : 0;
    case Collective::all_to_all_v: {
      std::int64_t sum = 0;
      for (const auto& row : problem.counts) sum += row[static_cast<std::size_t>(rank)];
      return sum;
    }
    case Collective::barrier:
      return 0;
    default:
      return problem.count;
  }
}

std::vector<Elements> random_inputs(const Problem& problem, DataType type, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Elements> inputs;
  for (int rank = 0; rank < problem.ranks; ++rank)
    inputs.emplace_back(static_cast<std::size_t>(input_elements(problem, rank)));
  if (is_reduction(problem.collective)) {
    Elements values(inputs.size());
    for (std::size_t i = 0; i < inputs[0].size(); ++i) {
      draw(problem, type, random, values);
      for (std::size_t rank = 0; rank < inputs.size(); ++rank) inputs[rank][i] = values[rank];
    }
  } else {
    const std::uint64_t most = size_bytes(type) >= 4 ? 1 << 20 : 5;
    for (auto& input : inputs)
      for (auto& element : input) element = static_cast<std::int64_t>(random() % most);
  }
  return inputs;
}

std::vector<Elements> expected_outputs(const Problem& problem,
                                       const std::vector<Elements>& inputs) {
  const auto ranks = static_cast<std::size_t>(problem.ranks);
  const auto root = static_cast<std::size_t>(problem.root);
  const auto count = static_cast<std::size_t>(problem.count);
  std::vector<Elements> outputs(ranks);
  const auto append = [](Elements& to, const Elements& from, std::size_t begin,
                         std::size_t elements) {
    to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(begin),
              from.begin() + static_cast<std::ptrdiff_t>(begin + elements));
  };
  if (is_reduction(problem.collective)) {
    const Elements all = reduce_all(problem, inputs);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (problem.collective == Collective::all_reduce) outputs[rank] = all;
      if (problem.collective == Collective::reduce && rank == root) outputs[rank] = all;
      if (problem.collective == Collective::reduce_scatter)
        append(outputs[rank], all, rank * count, count);
    }
    return outputs;
  }
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (std::size_t from = 0; from < ranks; ++from) {
      switch (problem.collective) {
        case Collective::all_gather:
          append(outputs[rank], inputs[from], 0, count);
          break;
        case Collective::gather:
          if (rank == root) append(outputs[rank], inputs[from], 0, count);
          break;
        case Collective::broadcast:
          if (from == root) append(outputs[rank], inputs[from], 0, count);
          break;
        case Collective::scatter:
          if (from == root) append(outputs[rank], inputs[from], rank * count, count);
          break;
        case Collective::all_to_all:
          append(outputs[rank], inputs[from], rank * count, count);
          break;
        case Collective::all_to_all_v:
          append(
              outputs[rank], inputs[from],
              static_cast<std::size_t>(block_start(problem.counts[from], static_cast<int>(rank))),
              static_cast<std::size_t>(problem.counts[from][rank]));
          break;
        default:
          break;
      }
    }
  return outputs;
}

std::vector<std::byte> encode(const Elements& elements, DataType type) {
  const std::size_t size = size_bytes(type);
  std::vector<std::byte> out(elements.size() * size);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const std::uint64_t code = is_integer_type(type) ? static_cast<std::uint64_t>(elements[i])
                                                     : encode_float(elements[i], format_of(type));
    std::memcpy(out.data() + i * size, &code, size);  // little-endian, as all our platforms
  }
  return out;
}

Elements decode(const std::byte* data, std::int64_t elements, DataType type) {
  const std::size_t size = size_bytes(type);
  Elements out(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint64_t code = 0;
    std::memcpy(&code, data + i * size, size);
    if (!is_integer_type(type)) {
      out[i] = decode_float(code, format_of(type));
      continue;
    }
    const bool is_signed = type == DataType::int8 || type == DataType::int16 ||
                           type == DataType::int32 || type == DataType::int64;
    const auto shift = static_cast<int>(64 - 8 * size);
    out[i] = is_signed ? static_cast<std::int64_t>(code << shift) >> shift
                       : static_cast<std::int64_t>(code);
  }
  return out;
}

}  // namespace unisono::test
