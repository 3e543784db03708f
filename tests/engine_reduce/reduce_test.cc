#include "engine/reduce/reduce.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/reduce/levels.h"
#include "engine/reduce/scaling.h"
#include "engine_reduce/elements.h"
#include "engine_reduce/reference.h"
#include "support/sanitized.h"

namespace unisono::engine {
namespace {

constexpr ReduceOperation combining[] = {ReduceOperation::sum, ReduceOperation::product,
                                         ReduceOperation::min, ReduceOperation::max,
                                         ReduceOperation::average};

struct Case {
  Level level;
  DataType type;
};

std::vector<Case> cases_up_to(std::size_t element_bytes) {
  std::vector<Case> cases;
  for (const Level& level : supported_levels()) {
    for (int i = 0; i < data_type_count; ++i) {
      const auto type = static_cast<DataType>(i);
      if (size_bytes(type) <= element_bytes) cases.push_back({level, type});
    }
  }
  return cases;
}

ReduceFunction kernel(const Case& c, ReduceOperation operation) {
  return c.level.kernels->combine[static_cast<int>(c.type)][static_cast<int>(operation)];
}

std::string label(const testing::TestParamInfo<Case>& info) {
  return std::string(info.param.level.name) + "_" + std::string(name(info.param.type));
}

class EveryKernel : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    seed_ = std::random_device{}();
    random_.seed(seed_);
  }

  // Combines left[i] with right[i] in one call and compares each element with the reference.
  void expect_reference(ReduceOperation operation, const std::vector<std::uint64_t>& left,
                        const std::vector<std::uint64_t>& right, std::size_t misalignment) {
    const DataType type = GetParam().type;
    Elements a(type, left.size(), misalignment);
    Elements b(type, left.size(), (misalignment * 3) % 64);
    Elements out(type, left.size(), (misalignment * 7) % 64);
    a.set_all(left);
    b.set_all(right);
    kernel(GetParam(), operation)(out.data(), a.data(), b.data(), left.size());
    for (std::size_t i = 0; i < left.size(); ++i) {
      const std::uint64_t expected = reference_combine(type, operation, a.get(i), b.get(i));
      ASSERT_EQ(out.get(i), expected)
          << std::hex << name(operation) << " of 0x" << a.get(i) << " and 0x" << b.get(i)
          << std::dec << " at " << i << ", seed " << seed_;
    }
    EXPECT_TRUE(out.margins_intact());
  }

  std::uint32_t seed_ = 0;
  std::mt19937_64 random_;
};

class EveryNarrowKernel : public EveryKernel {};

INSTANTIATE_TEST_SUITE_P(, EveryKernel, testing::ValuesIn(cases_up_to(8)), label);
INSTANTIATE_TEST_SUITE_P(, EveryNarrowKernel, testing::ValuesIn(cases_up_to(2)), label);

TEST_P(EveryNarrowKernel, CombinesAllPairsOfEightBitsAndAllSixteenBitValuesWithPartners) {
  const std::size_t size = size_bytes(GetParam().type);
  const std::size_t values = std::size_t{1} << (8 * size);
  std::vector<std::uint64_t> partners;
  if (test::is_sanitized) {
    for (int i = 0; i < (size == 1 ? 16 : 1); ++i) partners.push_back(random_() % values);
  } else if (size == 1) {
    for (std::uint64_t partner = 0; partner < values; ++partner) partners.push_back(partner);
  } else {
    partners = special_values(GetParam().type);
    for (int i = 0; i < 8; ++i) partners.push_back(random_());
  }
  std::vector<std::uint64_t> all(values);
  for (std::size_t i = 0; i < values; ++i) all[i] = i;
  for (const ReduceOperation operation : combining) {
    for (const std::uint64_t partner : partners) {
      expect_reference(operation, all, std::vector<std::uint64_t>(values, partner), 0);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(EveryKernel, CombinesAllPairsOfSpecialValues) {
  const std::vector<std::uint64_t> specials = special_values(GetParam().type);
  std::vector<std::uint64_t> left;
  std::vector<std::uint64_t> right;
  for (const std::uint64_t a : specials) {
    for (const std::uint64_t b : specials) {
      left.push_back(a);
      right.push_back(b);
    }
  }
  for (const ReduceOperation operation : combining) expect_reference(operation, left, right, 1);
}

TEST_P(EveryKernel, CombinesAnyCountAtAnyAlignment) {
  for (const std::size_t count :
       {0, 1, 2, 3, 5, 7, 8, 13, 15, 16, 17, 31, 33, 63, 65, 97, 127, 129, 191, 257, 509, 1021}) {
    for (const ReduceOperation operation : combining) {
      expect_reference(operation, mixed_values(GetParam().type, count, random_),
                       mixed_values(GetParam().type, count, random_), random_() % 64);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(EveryKernel, CombinesInPlaceOnEitherOperandOrBoth) {
  const DataType type = GetParam().type;
  constexpr std::size_t count = 203;
  for (const ReduceOperation operation : combining) {
    const ReduceFunction function = kernel(GetParam(), operation);
    const std::vector<std::uint64_t> left = mixed_values(type, count, random_);
    const std::vector<std::uint64_t> right = mixed_values(type, count, random_);
    Elements a(type, count, 3);
    Elements b(type, count, 5);
    Elements apart(type, count, 0);
    Elements doubled(type, count, 1);
    a.set_all(left);
    b.set_all(right);
    function(apart.data(), a.data(), b.data(), count);
    function(a.data(), a.data(), b.data(), count);
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(a.get(i), apart.get(i)) << i;
    a.set_all(left);
    function(b.data(), a.data(), b.data(), count);
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(b.get(i), apart.get(i)) << i;
    function(doubled.data(), a.data(), a.data(), count);
    function(a.data(), a.data(), a.data(), count);
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(a.get(i), doubled.get(i)) << i;
    EXPECT_TRUE(a.margins_intact());
    EXPECT_TRUE(b.margins_intact());
  }
}

TEST_P(EveryKernel, GivesTheSameBitsWithOperandsExchanged) {
  const DataType type = GetParam().type;
  constexpr std::size_t count = 4099;
  Elements a(type, count, 0);
  Elements b(type, count, 0);
  Elements forward(type, count, 0);
  Elements backward(type, count, 0);
  a.set_all(mixed_values(type, count, random_));
  b.set_all(mixed_values(type, count, random_));
  for (const ReduceOperation operation : combining) {
    kernel(GetParam(), operation)(forward.data(), a.data(), b.data(), count);
    kernel(GetParam(), operation)(backward.data(), b.data(), a.data(), count);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(forward.get(i), backward.get(i))
          << std::hex << name(operation) << " of 0x" << a.get(i) << " and 0x" << b.get(i)
          << ", seed 0x" << seed_;
    }
  }
}

TEST_P(EveryKernel, ScalesByIntegersModuloTheWidthAndByRoundedReals) {
  const DataType type = GetParam().type;
  constexpr std::size_t count = 611;
  const ScaleFactor factors[] = {{1, 1},
                                 {0, 0},
                                 {-3, -3},
                                 {1.0 / 3, std::numeric_limits<std::int64_t>::min()},
                                 {1e300, std::numeric_limits<std::int64_t>::max()},
                                 {5e-8, static_cast<std::int64_t>(random_())},
                                 {std::numeric_limits<double>::infinity(), 255},
                                 {std::numeric_limits<double>::quiet_NaN(), 65535}};
  for (const ScaleFactor& factor : factors) {
    Elements source(type, count, 7);
    Elements out(type, count, 2);
    source.set_all(mixed_values(type, count, random_));
    const ScaleFunction function = GetParam().level.kernels->scale[static_cast<int>(type)];
    function(out.data(), source.data(), count, factor);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(out.get(i), reference_scale(type, source.get(i), factor.real, factor.integer))
          << std::hex << "0x" << source.get(i) << " by " << factor.real << " or 0x"
          << factor.integer << ", seed 0x" << seed_;
    }
    EXPECT_TRUE(out.margins_intact());
    function(source.data(), source.data(), count, factor);
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(source.get(i), out.get(i)) << i;
  }
}

TEST_P(EveryKernel, DividesIntegersRoundingTowardsZero) {
  const DataType type = GetParam().type;
  if (!is_integer(type)) return;
  constexpr std::size_t count = 2053;
  const auto any_ranks = static_cast<int>(2 + random_() % 100000);
  for (const int ranks :
       {1, 2, 3, 5, 7, 8, 13, 64, 255, 256, 65537, any_ranks, std::numeric_limits<int>::max()}) {
    Elements source(type, count, 1);
    Elements out(type, count, 4);
    source.set_all(mixed_values(type, count, random_));
    // Multiples and their neighbours are where a rounded quotient would go wrong.
    for (std::size_t i = 0; i + 3 <= count / 2; i += 3) {
      const std::uint64_t multiple =
          random_() / static_cast<unsigned>(ranks) * static_cast<unsigned>(ranks);
      for (std::uint64_t j = 0; j < 3; ++j) source.set(i + j, multiple + j - 1);
    }
    const DivideFunction function = GetParam().level.kernels->divide[static_cast<int>(type)];
    function(out.data(), source.data(), count, ranks);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(out.get(i), reference_divide(type, source.get(i), ranks))
          << std::hex << "0x" << source.get(i) << std::dec << " by " << ranks << ", seed " << seed_;
    }
    EXPECT_TRUE(out.margins_intact());
    function(source.data(), source.data(), count, ranks);
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(source.get(i), out.get(i)) << i;
  }
}

// The reference itself, held against published numbers.
TEST(ReduceReference, KnowsTheLandmarksOfTheNarrowFormats) {
  const auto sum = [](DataType type, std::uint64_t a, std::uint64_t b) {
    return reference_combine(type, ReduceOperation::sum, a, b);
  };
  EXPECT_EQ(sum(DataType::float8_e4m3, 0x38, 0x38), 0x40U);  // 1 + 1 = 2
  EXPECT_EQ(sum(DataType::float8_e4m3, 0x7e, 0x7e), 0x7eU);  // 448 + 448 saturates
  EXPECT_EQ(sum(DataType::float8_e4m3, 0xfe, 0xfe), 0xfeU);
  EXPECT_EQ(sum(DataType::float8_e4m3, 0x38, 0xff), 0x7fU);  // NaN
  EXPECT_EQ(sum(DataType::float8_e4m3, 0x01, 0x01), 0x02U);  // 2^-9 + 2^-9
  EXPECT_EQ(sum(DataType::float8_e5m2, 0x3c, 0x3c), 0x40U);
  EXPECT_EQ(sum(DataType::float8_e5m2, 0x7b, 0x7b), 0x7bU);  // 57344 + 57344 saturates
  EXPECT_EQ(sum(DataType::float8_e5m2, 0x7c, 0x3c), 0x7bU);  // so does infinity
  EXPECT_EQ(sum(DataType::float8_e5m2, 0x7c, 0xfc), 0x7fU);  // infinity - infinity
  EXPECT_EQ(sum(DataType::float16, 0x3c00, 0x3c00), 0x4000U);
  EXPECT_EQ(sum(DataType::float16, 0x7bff, 0x7bff), 0x7c00U);  // 65504 + 65504
  EXPECT_EQ(sum(DataType::float16, 0x6800, 0x3c00), 0x6800U);  // 2048 + 1: tie, to even
  EXPECT_EQ(sum(DataType::float16, 0x6801, 0x3c00), 0x6802U);  // 2050 + 1: tie, to even
  EXPECT_EQ(sum(DataType::bfloat16, 0x3f80, 0x3f80), 0x4000U);
  EXPECT_EQ(sum(DataType::bfloat16, 0x4380, 0x3f80), 0x4380U);  // 256 + 1: tie, to even
  EXPECT_EQ(reference_combine(DataType::float8_e5m2, ReduceOperation::max, 0x7c, 0x3c), 0x7cU);
  EXPECT_EQ(reference_combine(DataType::float32, ReduceOperation::min, 0, 0x80000000U),
            0x80000000U);
  EXPECT_EQ(reference_combine(DataType::float32, ReduceOperation::max, 0, 0x80000000U), 0U);
}

}  // namespace
}  // namespace unisono::engine
