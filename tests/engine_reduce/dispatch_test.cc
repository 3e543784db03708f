#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "engine/reduce/levels.h"
#include "engine/reduce/reduce.h"
#include "engine/reduce/scaling.h"
#include "support/folders.h"

namespace unisono::engine {
namespace {

TEST(ReduceDispatch, TakesTheBestLevelWithoutACap) {
  const LevelChoice choice = choose_level("");
  EXPECT_TRUE(choice.known);
  EXPECT_EQ(choice.level.name, supported_levels().back().name);
}

TEST(ReduceDispatch, NeverExceedsTheCap) {
  for (const Level& level : supported_levels()) {
    const LevelChoice choice = choose_level(level.name);
    EXPECT_TRUE(choice.known);
    EXPECT_EQ(choice.level.kernels, level.kernels) << level.name;
  }
  EXPECT_EQ(choose_level("baseline").level.kernels, supported_levels().front().kernels);
}

TEST(ReduceDispatch, SaysThatACapIsUnknownAndIgnoresIt) {
  const LevelChoice choice = choose_level("sse9");
  EXPECT_FALSE(choice.known);
  EXPECT_EQ(choice.level.kernels, supported_levels().back().kernels);
}

TEST(ReduceDispatch, HasAKernelForEveryTypeAndOperationAtEveryLevel) {
  for (const Level& level : supported_levels()) {
    for (int type = 0; type < data_type_count; ++type) {
      for (const ReduceFunction function : level.kernels->combine[type]) {
        EXPECT_NE(function, nullptr) << level.name << " type " << type;
      }
      EXPECT_NE(level.kernels->scale[type], nullptr) << level.name << " type " << type;
      EXPECT_EQ(level.kernels->divide[type] != nullptr, is_integer(static_cast<DataType>(type)))
          << level.name << " type " << type;
    }
  }
}

TEST(ReduceDispatch, CombinesPreMultipliedSumAsSumAndAverageWhereSumsStayFinite) {
  for (int i = 0; i < data_type_count; ++i) {
    const auto type = static_cast<DataType>(i);
    const ReduceFunction sum = reduce_function(type, ReduceOperation::sum);
    const bool overflows = !is_integer(type) && size_bytes(type) > 1;
    EXPECT_EQ(reduce_function(type, ReduceOperation::average) == sum, !overflows) << name(type);
    EXPECT_EQ(reduce_function(type, ReduceOperation::pre_multiplied_sum), sum);
    EXPECT_NE(reduce_function(type, ReduceOperation::product), sum);
  }
}

TEST(ReduceDispatch, ScalesAndDividesThroughTheActiveLevel) {
  std::array<std::int32_t, 3> integers = {7, -7, 9};
  scale(DataType::int32, integers.data(), integers.data(), integers.size(), scale_factor(3.0));
  divide(DataType::int32, integers.data(), integers.data(), integers.size(), 2);
  EXPECT_EQ(integers, (std::array<std::int32_t, 3>{10, -10, 13}));
  std::array<float, 2> reals = {1.5F, -6.0F};
  scale(DataType::float32, reals.data(), reals.data(), reals.size(), scale_factor(0.5));
  EXPECT_EQ(reals, (std::array<float, 2>{0.75F, -3.0F}));
}

TEST(ReduceDispatch, ScalesContributionsOfFloatsAndDividesSumsOfIntegers) {
  const ScaleFactor given{.real = 3, .integer = 4};
  for (int i = 0; i < data_type_count; ++i) {
    const auto type = static_cast<DataType>(i);
    const Scaling multiplied = scaling_of(ReduceOperation::pre_multiplied_sum, type, 5, given);
    EXPECT_TRUE(multiplied.scales_input && !multiplied.divides_result);
    EXPECT_EQ(multiplied.factor.real, 3);
    EXPECT_EQ(multiplied.factor.integer, 4);
    const Scaling average = scaling_of(ReduceOperation::average, type, 5, given);
    EXPECT_EQ(average.scales_input, !is_integer(type)) << name(type);
    EXPECT_EQ(average.divides_result, is_integer(type)) << name(type);
    EXPECT_EQ(average.factor.real, is_integer(type) ? 1 : 0.2) << name(type);
    for (const auto& [operation, ranks] :
         {std::pair(ReduceOperation::average, 1), std::pair(ReduceOperation::sum, 5)}) {
      const Scaling none = scaling_of(operation, type, ranks, given);
      EXPECT_FALSE(none.scales_input || none.divides_result) << name(type);
    }
  }
}

template <class T>
ScaleFactor factor_of(DataType type, T element) {
  std::array<unsigned char, 1 + sizeof element> bytes{};
  std::memcpy(bytes.data() + 1, &element, sizeof element);
  return scale_factor(type, bytes.data() + 1);
}

TEST(ReduceDispatch, ReadsAFactorOfEveryType) {
  EXPECT_EQ(factor_of<std::int8_t>(DataType::int8, -5).integer, -5);
  EXPECT_EQ(factor_of<std::uint8_t>(DataType::uint8, 250).integer, 250);
  EXPECT_EQ(factor_of<std::int16_t>(DataType::int16, -500).integer, -500);
  EXPECT_EQ(factor_of<std::uint16_t>(DataType::uint16, 65000).integer, 65000);
  EXPECT_EQ(factor_of<std::int32_t>(DataType::int32, -70000).integer, -70000);
  EXPECT_EQ(factor_of<std::uint32_t>(DataType::uint32, 4000000000U).integer, 4000000000);
  EXPECT_EQ(factor_of<std::int64_t>(DataType::int64, -1).integer, -1);
  EXPECT_EQ(factor_of<std::uint64_t>(DataType::uint64, ~std::uint64_t{0}).integer, -1);
  EXPECT_EQ(factor_of<std::uint16_t>(DataType::float16, 0xc100).real, -2.5);
  EXPECT_EQ(factor_of<std::uint16_t>(DataType::float16, 0x0001).real, 0x1p-24);
  EXPECT_EQ(factor_of<std::uint16_t>(DataType::bfloat16, 0x3f40).real, 0.75);
  EXPECT_EQ(factor_of<std::uint8_t>(DataType::float8_e4m3, 0x7e).real, 448);
  EXPECT_EQ(factor_of<std::uint8_t>(DataType::float8_e5m2, 0xfb).real, -57344);
  EXPECT_EQ(factor_of<std::uint8_t>(DataType::float8_e5m2, 0x7c).real,
            std::numeric_limits<double>::infinity());
  const double nan = factor_of<std::uint8_t>(DataType::float8_e4m3, 0x7f).real;
  EXPECT_NE(nan, nan);
  EXPECT_EQ(factor_of<float>(DataType::float32, 0.1F).real, static_cast<double>(0.1F));
  EXPECT_EQ(factor_of<double>(DataType::float64, 0.1).real, 0.1);
}

TEST(ReduceDispatch, SaturatesARealFactorForIntegers) {
  EXPECT_EQ(scale_factor(-2.9).integer, -2);
  EXPECT_EQ(scale_factor(1e30).integer, std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(scale_factor(-1e30).integer, std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(scale_factor(std::numeric_limits<double>::quiet_NaN()).integer, 0);
}

// What `nm` prints of one object file, a symbol a line.
std::vector<std::string> symbols_of(const std::filesystem::path& object) {
  std::vector<std::string> lines;
  const std::string command = "nm --defined-only '" + object.string() + "' 2>/dev/null";
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return lines;
  std::array<char, 4096> line{};
  while (std::fgets(line.data(), line.size(), pipe) != nullptr) lines.emplace_back(line.data());
  pclose(pipe);
  return lines;
}

// The linker keeps one copy of a weak function. One compiled for AVX-512 would then run everywhere.
TEST(ReduceDispatch, KernelObjectsShareNoFunctionWithOthers) {
  int objects = 0;
  const std::filesystem::path layer = std::filesystem::path(test::build_folder()) /
                                      "CMakeFiles/unisono_engine.dir/src/engine/reduce";
  if (!std::filesystem::is_directory(layer)) GTEST_SKIP() << layer << " is not there";
  for (const auto& entry : std::filesystem::directory_iterator(layer)) {
    const std::string file = entry.path().filename().string();
    if (file.rfind("kernels_", 0) != 0 || entry.path().extension() != ".o") continue;
    const std::vector<std::string> symbols = symbols_of(entry.path());
    if (symbols.empty()) GTEST_SKIP() << "nm is not there";
    ++objects;
    for (const std::string& symbol : symbols) {
      EXPECT_EQ(symbol.find(" W "), std::string::npos) << file << ": " << symbol;
      EXPECT_EQ(symbol.find(" T "), std::string::npos) << file << ": " << symbol;
    }
  }
  EXPECT_GT(objects, 0);
}

}  // namespace
}  // namespace unisono::engine
