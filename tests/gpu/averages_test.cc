// Averages of floats at the limits of their types, beside their exact means.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include "base/str.h"
#include "base/try.h"
#include "engine/reduce/scaling.h"
#include "gpu/runs.h"
#include "support/carried.h"
#include "support/emulated_device.h"

namespace unisono::test {
namespace {

struct Format {
  DataType type;
  int significant_bits;
  std::uint64_t largest;   // the code of the largest finite number
  std::uint64_t infinity;  // 0: stored as the largest finite number
  std::uint64_t nan;
};
constexpr Format formats[] = {
    {DataType::float8_e4m3, 4, 0x7e, 0, 0x7f},
    {DataType::float8_e5m2, 3, 0x7b, 0, 0x7f},
    {DataType::float16, 11, 0x7bff, 0x7c00, 0x7e00},
    {DataType::bfloat16, 8, 0x7f7f, 0x7f80, 0x7fc0},
    {DataType::float32, 24, 0x7f7fffff, 0x7f800000, 0x7fc00000},
    {DataType::float64, 53, 0x7fefffffffffffff, 0x7ff0000000000000, 0x7ff8000000000000}};

class GpuAverages : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (usable_devices(&why).empty()) GTEST_SKIP() << why;
  }

  // By rank: of elements that follow each other, each of another kind.
  using Codes = std::vector<std::uint64_t>;
  std::vector<Codes> draw(const Format& format, int ranks, std::size_t elements) {
    const std::uint64_t sign = std::uint64_t{1} << (8 * size_bytes(format.type) - 1);
    std::vector<Codes> all(static_cast<std::size_t>(ranks), Codes(elements));
    for (std::size_t i = 0; i < elements; ++i) {
      const std::size_t odd = random_() % all.size();
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        const std::uint64_t any_sign = random_() % 2 == 0 ? sign : 0;
        const std::uint64_t is_odd = rank == odd ? 1 : 0;
        const std::uint64_t finite = random_() % (format.largest + 1);
        const std::uint64_t special = format.infinity != 0 ? format.infinity : format.largest;
        // The exponents are zero.
        const std::uint64_t subnormal =
            random_() % (std::uint64_t{1} << (format.significant_bits - 1));
        const std::array kinds{format.largest,
                               format.largest | sign,
                               format.largest | any_sign,
                               format.largest - random_() % 3,
                               is_odd != 0 ? format.nan : finite | any_sign,
                               is_odd != 0 ? special : finite,
                               special | any_sign,
                               std::uint64_t{1},
                               subnormal | any_sign,
                               finite | any_sign,
                               finite};
        all[rank][i] = kinds[i % kinds.size()];
      }
    }
    return all;
  }

  static long double real_of(const Format& format, std::uint64_t code) {
    return engine::scale_factor(format.type, &code).real;
  }

  // What is wrong with `got` as the average of element i; or nothing.
  static std::string check(const Format& format, const std::vector<Codes>& inputs, std::size_t i,
                           std::uint64_t got) {
    const auto ranks = static_cast<long double>(inputs.size());
    long double mean = 0, size = 0;
    for (const Codes& input : inputs) {
      mean += real_of(format, input[i]) / ranks;
      size += std::fabs(real_of(format, input[i])) / ranks;
    }
    const long double found = real_of(format, got);
    const long double unit = std::ldexp(1.0L, -format.significant_bits);
    const long double bound = 1.1L * (ranks + 1) * unit * size + ranks * real_of(format, 1) / 2;
    const bool is_right = std::isnan(mean)   ? got == format.nan
                          : std::isinf(mean) ? found == mean
                                             : std::fabs(found - mean) <= bound;
    if (is_right) return {};
    std::string what = str(name(format.type), " element ", i, " is ", double(found), ", not ",
                           double(mean), " within ", double(bound), ", of");
    for (const Codes& input : inputs) append(what, str(" ", double(real_of(format, input[i]))));
    return what;
  }

  Result<std::vector<Codes>> outputs(GpuCluster& cluster, const GpuCluster::Run& run,
                                     const std::vector<Codes>& inputs) {
    const std::size_t size = size_bytes(run.type);
    UNISONO_ASSIGN(auto executions, cluster.make_executions(run));
    std::vector<sys::cuda::Memory> memory;
    std::vector<engine::Arguments> arguments;
    for (const int rank : cluster.all_ranks()) {
      const Codes& codes = inputs[static_cast<std::size_t>(rank)];
      std::vector<std::byte> bytes(codes.size() * size);
      for (std::size_t i = 0; i < codes.size(); ++i)
        std::memcpy(bytes.data() + i * size, &codes[i], size);
      const auto device = cluster.engine(rank).shared_device();
      for (int i = 0; i < 2; ++i) {
        UNISONO_ASSIGN(auto one, sys::cuda::Memory::allocate(device, bytes.size()));
        memory.push_back(std::move(one));
      }
      const auto input = memory[memory.size() - 2].address();
      UNISONO_TRY(device->upload(input, bytes.data(), bytes.size()));
      const auto output = run.request.in_place ? input : memory.back().address();
      arguments.push_back({.input = reinterpret_cast<const void*>(input),
                           .output = reinterpret_cast<void*>(output),
                           .count = run.problem.count,
                           .type = run.type,
                           .operation = ReduceOperation::average,
                           .options = {.timeout = std::chrono::seconds(120),
                                       .stream = cluster.stream(rank).handle()}});
    }
    UNISONO_TRY(cluster.launch(executions, arguments, cluster.all_ranks()));
    UNISONO_TRY(cluster.synchronize());
    std::vector<Codes> all;
    for (const int rank : cluster.all_ranks()) {
      Codes& codes = all.emplace_back(static_cast<std::size_t>(output_elements(run.problem, rank)),
                                      std::uint64_t{0});
      std::vector<std::byte> bytes(codes.size() * size);
      if (bytes.empty()) continue;
      UNISONO_TRY(
          cluster.engine(rank).device().copy(sys::cuda::address_of(bytes.data()),
                                             reinterpret_cast<sys::cuda::DeviceAddress>(
                                                 arguments[static_cast<std::size_t>(rank)].output),
                                             bytes.size()));
      for (std::size_t i = 0; i < codes.size(); ++i)
        std::memcpy(&codes[i], bytes.data() + i * size, size);
    }
    return all;
  }

  std::mt19937_64 random_{test_seed()};
};

TEST_F(GpuAverages, StayInRangeInEveryKernel) {
  constexpr std::int64_t count = 33;
  constexpr Protocol protocols[] = {Protocol::simple, Protocol::ll, Protocol::ll128};
  int runs = 0;
  for (const int ranks : {2, 3, 4, 5}) {
    GpuCluster cluster(ranks, {});
    for (const algorithm::Entry& entry : entries_by_exchange(ranks)) {
      if (!is_reduction(entry.collective)) continue;
      for (const Format& format : formats) {
        if (random_() % 2 == 0) continue;
        const Protocol protocol = protocols[runs % protocol_count];
        const bool in_place = entry.collective == Collective::all_reduce && random_() % 2 == 0;
        auto run =
            run_of(entry, problem_of(entry, ranks, count, random_), protocol, 1, in_place, 1);
        run.type = format.type;
        if (!entry.supports(run.request).ok()) continue;
        ++runs;
        const auto inputs =
            draw(format, ranks, static_cast<std::size_t>(input_elements(run.problem, 0)));
        const auto got = outputs(cluster, run, inputs);
        ASSERT_TRUE(got.ok()) << got.error().describe();
        for (int rank = 0; rank < ranks; ++rank) {
          const Codes& own = (*got)[static_cast<std::size_t>(rank)];
          const std::size_t first =
              entry.collective == Collective::reduce_scatter ? own.size() * std::size_t(rank) : 0;
          for (std::size_t i = 0; i < own.size(); ++i)
            ASSERT_EQ(check(format, inputs, first + i, own[i]), "")
                << describe(run) << ", rank " << rank << ", seed " << test_seed();
        }
      }
    }
  }
  EXPECT_GE(runs, 15);
}

}  // namespace
}  // namespace unisono::test
