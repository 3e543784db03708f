// Whatever carries a plan, its results are the same bits: the interpreter's, which does the plan's
// steps, and those of the kernels that were chosen by what it exchanges.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <set>

#include "base/str.h"
#include "support/carried.h"
#include "support/emulated_device.h"
#include "support/gpu_cluster.h"
#include "support/permuted_plan.h"
#include "verify/verify.h"

namespace unisono::test {
namespace {

using sys::cuda::Memory;

struct Case {
  plan::Plan plan;
  std::shared_ptr<const plan::Exchange> exchange;
  std::int64_t count;
  ReduceOperation operation;
  int max_sms;
};

class GpuExchanges : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (usable_devices(&why).empty()) GTEST_SKIP() << why;
  }

  std::int64_t below(std::int64_t end) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(end));
  }

  // Numbers that follow each other as before half of the time, so that sums are still in turn.
  std::vector<int> numbers(int ranks) {
    std::vector<int> out;
    const auto first = static_cast<int>(below(ranks));
    for (int rank = 0; rank < ranks; ++rank) out.push_back((rank + first) % ranks);
    if (below(2) == 0) std::ranges::shuffle(out, random_);
    return out;
  }

  Case case_of(const algorithm::Entry& entry, int ranks) {
    const Protocol protocol = below(2) == 0 ? Protocol::ll : Protocol::ll128;
    const auto root = static_cast<int>(has_root(entry.collective) ? below(ranks) : 0);
    const auto plan = algorithm::make_plan(entry, {.collective = entry.collective,
                                                   .placement = topo::Placement::single_node(ranks),
                                                   .root = root,
                                                   .protocol = protocol});
    EXPECT_TRUE(plan.ok()) << plan.error().describe();
    plan::Plan made = permuted(*plan, numbers(ranks));
    made.header.name = "of_mine";
    const ReduceOperation operations[] = {ReduceOperation::sum, ReduceOperation::average,
                                          ReduceOperation::product, ReduceOperation::max};
    auto exchange = plan::shared_exchange_of(made);
    return {std::move(made), std::move(exchange), 1 + below(below(4) == 0 ? 70'000 : 3'000),
            operations[below(4)], static_cast<int>(1 + below(32))};
  }

  // What three calls in a row leave in each rank's output, with the kernels that the exchange is
  // for, or with the interpreter.
  std::vector<std::vector<float>> outputs(GpuCluster& cluster, const Case& one, bool interprets,
                                          const std::vector<std::vector<float>>& inputs) {
    const int ranks = cluster.ranks();
    GpuCluster::Executions executions;
    std::vector<engine::Arguments> arguments;
    std::vector<Memory> memory;
    std::vector<std::vector<float>> out;
    const auto allocate = [&](int rank, std::size_t bytes) {
      auto made = Memory::allocate(cluster.engine(rank).shared_device(), bytes + 16);
      EXPECT_TRUE(made.ok()) << made.error().describe();
      memory.push_back(std::move(*made));
      return memory.back().address();
    };
    for (int rank = 0; rank < ranks; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      auto execution =
          engine::gpu::make_execution(one.plan.header, one.plan.programs[r],
                                      interprets ? nullptr : one.exchange, cluster.resources(rank));
      EXPECT_TRUE(execution.ok()) << execution.error().describe();
      executions.push_back(std::move(*execution));
      const std::size_t input_bytes = inputs[r].size() * sizeof(float);
      out.emplace_back(
          static_cast<std::size_t>(one.count * plan::output_blocks_of(one.plan.header, rank)));
      const auto input = allocate(rank, input_bytes);
      const auto output = allocate(rank, out.back().size() * sizeof(float));
      const sys::cuda::Device& device = cluster.stream(rank).device();
      EXPECT_TRUE(device.upload(input, inputs[r].data(), input_bytes).ok());
      arguments.push_back({.input = reinterpret_cast<const void*>(input),
                           .output = reinterpret_cast<void*>(output),
                           .count = one.count,
                           .type = DataType::float32,
                           .operation = one.operation,
                           .is_on_stream = true,
                           .stream = cluster.stream(rank).handle(),
                           .timeout_ns = 20'000'000'000,
                           .max_sms = one.max_sms});
    }
    // Nobody reaches a peer's buffers in the first call, some do in the second, all in the third.
    for (call_ = 0; call_ < 3; ++call_) {
      const Status launched = cluster.launch(executions, arguments, cluster.all_ranks());
      EXPECT_TRUE(launched.ok()) << launched.error().describe();
      const Status done = cluster.synchronize();
      EXPECT_TRUE(done.ok()) << done.error().describe();
      for (int rank = 0; rank < ranks; ++rank) {
        auto& own = out[static_cast<std::size_t>(rank)];
        std::vector<float> now(own.size());
        const auto from = reinterpret_cast<sys::cuda::DeviceAddress>(
            arguments[static_cast<std::size_t>(rank)].output);
        EXPECT_TRUE(cluster.stream(rank)
                        .device()
                        .copy(reinterpret_cast<sys::cuda::DeviceAddress>(now.data()), from,
                              now.size() * sizeof(float))
                        .ok());
        if (call_ > 0) {
          EXPECT_EQ(difference(own, now), "")
              << "rank " << rank << " has other bits in call " << call_ << ", "
              << (interprets ? "interpreted" : "by a specialised kernel");
        }
        own = std::move(now);
      }
    }
    return out;
  }

  static bool is_same(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  static std::string difference(const std::vector<float>& a, const std::vector<float>& b) {
    if (is_same(a, b)) return {};
    const auto [at, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    const auto differ =
        std::inner_product(a.begin(), a.end(), b.begin(), 0, std::plus(), std::not_equal_to());
    return str("element ", at - a.begin(), " of ", a.size(), " is ", *at, " and ", *other, "; ",
               differ, " differ");
  }

  // Sums of these depend on their order.
  std::vector<std::vector<float>> inexact_inputs(const Case& one) {
    std::uniform_real_distribution<float> values(-1, 1);
    std::vector<std::vector<float>> out;
    for (int rank = 0; rank < one.plan.header.ranks; ++rank) {
      const std::int64_t elements = one.count * plan::input_blocks_of(one.plan.header, rank);
      out.emplace_back(static_cast<std::size_t>(elements));
      for (float& value : out.back()) value = values(random_);
    }
    return out;
  }

  // Buffers of few bytes are mapped, too.
  GpuCluster::Options options() {
    return {.engine = {.zero_copy_min_bytes = 1},
            .sees = [this](int, int) { return call_ == 2 || (call_ == 1 && below(2) == 0); }};
  }

  int call_ = 0;
  std::uint64_t seed_ = test_seed();
  std::mt19937_64 random_{seed_};
};

TEST_F(GpuExchanges, KernelsGiveTheInterpretersBits) {
  std::set<std::string> carried;
  int interpreted = 0;
  for (int ranks = 3; ranks <= 8; ++ranks) {
    GpuCluster cluster(ranks, options());
    for (const algorithm::Entry& entry : entries_by_exchange(ranks)) {
      if (entry.collective == Collective::all_to_all_v) continue;
      const Case one = case_of(entry, ranks);
      const std::string what =
          str(entry.plan_name(), " permuted, ", name(one.plan.header.protocol), ", ", ranks,
              " ranks, count ", one.count, ", max_sms ", one.max_sms, ", seed ", seed_);
      const verify::Report report = verify::verify(one.plan);
      ASSERT_TRUE(report.ok()) << what << "\n" << report.failures.front().describe();
      const bool is_carried = one.exchange && (one.plan.header.protocol == Protocol::ll
                                                   ? engine::gpu::ll_kind(*one.exchange).has_value()
                                                   : engine::gpu::ll128_hops(*one.exchange) > 0);
      if (!is_carried) {
        ++interpreted;
        continue;
      }
      const auto inputs = inexact_inputs(one);
      const auto wanted = outputs(cluster, one, true, inputs);
      const auto got = outputs(cluster, one, false, inputs);
      for (std::size_t rank = 0; rank < wanted.size(); ++rank)
        ASSERT_EQ(difference(wanted[rank], got[rank]), "") << what << ": rank " << rank;
      if (HasFailure()) FAIL() << what;
      carried.insert(str(name(entry.collective), " ", name(one.plan.header.protocol)));
    }
  }
  EXPECT_GE(carried.size(), 8U);
  RecordProperty("interpreted", interpreted);
}

}  // namespace
}  // namespace unisono::test
