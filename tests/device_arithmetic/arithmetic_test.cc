// The arithmetic of src/device/reduce beside the host's, bit for bit, without a GPU: compiled for
// the host, with the conversions and packed instructions of src/device/ptx in terms of single
// floats. That the instructions are such is what tests/gpu shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <type_traits>
#include <vector>

#include "engine/reduce/reduce.h"
#include "engine/reduce/scaling.h"

#include "nvcc.h"
// Behind what nvcc brings.
#include "device/reduce/units.cuh"

namespace unisono::device {
namespace {

constexpr int type_count = static_cast<int>(Type::float64) + 1;
constexpr std::size_t units = 8192;  // as many halves as there are numbers of 16 bits
using Units = std::vector<uint4>;

class DeviceArithmetic : public testing::TestWithParam<int> {
 protected:
  static Type type() { return static_cast<Type>(GetParam()); }
  static std::uint8_t number() { return static_cast<std::uint8_t>(GetParam()); }
  static DataType of_host() { return static_cast<DataType>(GetParam()); }
  static std::size_t element_bytes() { return size_bytes(of_host()); }
  static std::size_t elements() { return units * unit_bytes / element_bytes(); }
  // Any bits: infinities, subnormals and NaNs, too.
  Units random_units() {
    Units out(units);
    for (uint4& unit : out) unit = {draw(), draw(), draw(), draw()};
    return out;
  }
  unsigned draw() { return static_cast<unsigned>(random_()); }
  template <class Function>
  static Units each(const Units& a, Function function) {
    Units out(units);
    std::ranges::transform(a, out.begin(), function);
    return out;
  }
  void expect_same(const Units& got, const Units& wanted, const std::string& what) const {
    const auto* mine = reinterpret_cast<const unsigned char*>(got.data());
    const auto* theirs = reinterpret_cast<const unsigned char*>(wanted.data());
    for (std::size_t at = 0; at < units * unit_bytes; at += element_bytes())
      ASSERT_EQ(std::memcmp(mine + at, theirs + at, element_bytes()), 0)
          << what << " of " << name(of_host()) << ", element " << at / element_bytes() << ", seed "
          << seed_;
  }

  const unsigned seed_ = std::random_device{}();
  std::mt19937 random_{seed_};
};
std::string type_of(const testing::TestParamInfo<int>& info) {
  return std::string(name(static_cast<DataType>(info.param)));
}
INSTANTIATE_TEST_SUITE_P(Types, DeviceArithmetic, testing::Range(0, type_count), type_of);

class PowersOfTwo : public DeviceArithmetic {};
INSTANTIATE_TEST_SUITE_P(Types, PowersOfTwo,
                         testing::Values(static_cast<int>(Type::float16),
                                         static_cast<int>(Type::bfloat16),
                                         static_cast<int>(Type::float32)),
                         type_of);

TEST_P(DeviceArithmetic, CombinesAsTheHostDoes) {
  const std::array operations{std::pair(Combine::sum, ReduceOperation::sum),
                              std::pair(Combine::product, ReduceOperation::product),
                              std::pair(Combine::min, ReduceOperation::min),
                              std::pair(Combine::max, ReduceOperation::max),
                              std::pair(Combine::average, ReduceOperation::average)};
  for (const auto& [combine, operation] : operations) {
    // Averages are combined so where sums overflow alone.
    const bool overflows = !engine::is_integer(of_host()) && element_bytes() > 1;
    if (combine == Combine::average && !overflows) continue;
    const Units a = random_units(), b = random_units();
    Units got(units), wanted(units);
    for (std::size_t i = 0; i < units; ++i)
      got[i] = combine_any(number(), static_cast<std::uint8_t>(combine), a[i], b[i]);
    engine::reduce_function(of_host(), operation)(wanted.data(), a.data(), b.data(), elements());
    expect_same(got, wanted, std::string(name(operation)));
  }
}

TEST_P(DeviceArithmetic, ScalesAsTheHostDoes) {
  const Units a = random_units();
  const engine::ScaleFactor factor{.real = std::ldexp(static_cast<double>(draw()), -31),
                                   .integer = static_cast<std::int64_t>(draw()) - (1LL << 31)};
  Arithmetic arithmetic{};
  arithmetic.type = number();
  arithmetic.real_factor = factor.real;
  arithmetic.integer_factor = factor.integer;
  Units wanted(units);
  engine::scale(of_host(), wanted.data(), a.data(), elements(), factor);
  expect_same(each(a, [&](uint4 unit) { return scale_any(arithmetic, unit); }), wanted, "scaling");
}

// Of all pairs of numbers at the limit, of which random bits have few.
TEST_P(DeviceArithmetic, BoundsSumsOfAveragesAsTheHostDoes) {
  if (engine::is_integer(of_host()) || element_bytes() == 1) return;
  const std::uint64_t infinity = of_host() == DataType::float16    ? 0x7c00U
                                 : of_host() == DataType::bfloat16 ? 0x7f80U
                                 : of_host() == DataType::float32  ? 0x7f800000U
                                                                   : 0x7ff0000000000000U;
  const std::uint64_t sign = std::uint64_t{1} << (8 * element_bytes() - 1);
  const std::array limits{infinity - 1, infinity - 2, infinity,
                          infinity + 1, infinity / 2, std::uint64_t{0}};
  constexpr std::size_t patterns = 2 * limits.size();
  const auto pattern = [&](std::size_t i) { return limits[i / 2] | (i % 2 == 0 ? 0 : sign); };
  Units a(units), b(units), got(units), wanted(units);
  for (std::size_t i = 0; i < elements(); ++i) {
    const std::uint64_t left = pattern(i % patterns), right = pattern(i / patterns % patterns);
    const std::size_t at = i * element_bytes();
    std::memcpy(reinterpret_cast<unsigned char*>(a.data()) + at, &left, element_bytes());
    std::memcpy(reinterpret_cast<unsigned char*>(b.data()) + at, &right, element_bytes());
  }
  for (std::size_t i = 0; i < units; ++i)
    got[i] = combine_any(number(), static_cast<std::uint8_t>(Combine::average), a[i], b[i]);
  engine::reduce_function(of_host(), ReduceOperation::average)(wanted.data(), a.data(), b.data(),
                                                               elements());
  expect_same(got, wanted, "bounded sums");
}

TEST_P(DeviceArithmetic, DividesIntegersAsTheHostDoes) {
  if (!engine::is_integer(of_host())) return;
  for (const int ranks : {1, 2, 3, 4, 7, 8, 300, 70'000}) {
    const Units a = random_units();
    Units wanted(units);
    engine::divide(of_host(), wanted.data(), a.data(), elements(), ranks);
    Units got = a;
    auto* bytes = reinterpret_cast<unsigned char*>(got.data());
    for (std::size_t i = 0; i < elements(); ++i)
      divide_element(number(), bytes + i * element_bytes(), ranks);
    expect_same(got, wanted, "dividing by " + std::to_string(ranks));
  }
}

TEST_P(PowersOfTwo, ScaleAsTheHostDoes) {
  const auto check = [&]<class Format>(Format) {
    Units a = random_units();
    if (sizeof(typename Format::Storage) == 2) {
      std::vector<std::uint16_t> all(elements());
      std::iota(all.begin(), all.end(), std::uint16_t{0});
      std::memcpy(a.data(), all.data(), units * unit_bytes);
    }
    for (const int halvings : {1, 2, 3}) {
      Units wanted(units);
      engine::scale(of_host(), wanted.data(), a.data(), elements(),
                    {.real = std::ldexp(1, -halvings)});
      expect_same(each(a, [&](uint4 unit) { return halve<Format>(unit, halvings); }), wanted,
                  "halving " + std::to_string(halvings) + " times");
    }
  };
  if (type() == Type::float16) return check(Float16());
  if (type() == Type::bfloat16) return check(BFloat16());
  if (type() == Type::float32) return check(Float32());
  FAIL() << "there is no such scaling of " << name(of_host());
}

}  // namespace
}  // namespace unisono::device
