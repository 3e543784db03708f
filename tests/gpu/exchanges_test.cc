// Whatever carries a plan, its results are the same bits: the host engine, its short path, the
// interpreter's kernel, and the kernels that were chosen by what it exchanges. They are those of
// the plan's steps done one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <set>

#include "base/str.h"
#include "support/carried.h"
#include "support/emulated_device.h"
#include "support/engine_cluster.h"
#include "support/float_interpreter.h"
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

using Floats = std::vector<std::vector<float>>;  // by rank

// Some calls are of many tiles, and large messages are read where they lie.
transport::FifoOptions small_slots() {
  return {.slots = 2,
          .simple_slot_bytes = 4096,
          .ll_slot_bytes = 4096,
          .ll128_slot_bytes = 4096,
          .zero_copy = true,
          .zero_copy_min_bytes = 1024};
}
// Most are of one, and may be short.
transport::FifoOptions large_slots() {
  return {.slots = 2,
          .simple_slot_bytes = 64 << 10,
          .ll_slot_bytes = 64 << 10,
          .ll128_slot_bytes = 64 << 10};
}

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

  Case case_of(const algorithm::Entry& entry, const GpuCluster& cluster) {
    const int ranks = cluster.ranks();
    const auto protocol = static_cast<Protocol>(below(protocol_count));
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
    const int most = cluster.most_sms();
    const int most_blocks = most == 0 ? 32 : std::min(most, 32);
    return {std::move(made), std::move(exchange), 1 + below(below(4) == 0 ? 70'000 : 3'000),
            operations[below(4)], static_cast<int>(1 + below(most_blocks))};
  }

  // What three calls in a row leave in each rank's output, with the kernels that the exchange is
  // for, or with the interpreter.
  Floats outputs(GpuCluster& cluster, const Case& one, bool interprets, const Floats& inputs) {
    const int ranks = cluster.ranks();
    GpuCluster::Executions executions;
    std::vector<engine::Arguments> arguments;
    std::vector<Memory> memory;
    Floats out;
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
                           .options = {.timeout = std::chrono::seconds(120),
                                       .stream = cluster.stream(rank).handle(),
                                       .max_sms = one.max_sms}});
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

  // What each of three calls in a row must leave by the host engine, which carries the second and
  // third by its short path where it can. Whether it did so.
  bool check_on_host(EngineCluster& cluster, const Case& one, const Floats& inputs,
                     const Floats& wanted) {
    auto executions = cluster.make_executions(one.plan);
    EXPECT_TRUE(executions.ok()) << executions.error().describe();
    Floats got;
    std::vector<engine::Arguments> arguments;
    for (std::size_t r = 0; r < inputs.size(); ++r) got.emplace_back(wanted[r].size());
    for (std::size_t r = 0; r < inputs.size(); ++r)
      arguments.push_back({.input = inputs[r].data(),
                           .output = got[r].data(),
                           .count = one.count,
                           .type = DataType::float32,
                           .operation = one.operation});
    std::vector<std::size_t> bytes;  // more where a short run was laid out
    for (const auto& execution : *executions) bytes.push_back(execution->memory_bytes());
    for (int call = 0; call < 3; ++call) {
      for (auto& own : got) std::ranges::fill(own, 0.0F);
      EXPECT_EQ(EngineCluster::run(*executions, arguments, random_()), "");
      for (std::size_t r = 0; r < wanted.size(); ++r)
        EXPECT_EQ(difference(wanted[r], got[r]), "")
            << "rank " << r << ", host engine, call " << call;
    }
    for (std::size_t r = 0; r < bytes.size(); ++r)
      if ((*executions)[r]->memory_bytes() == bytes[r]) return false;
    return true;
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
  Floats inexact_inputs(const Case& one) {
    std::uniform_real_distribution<float> values(-1, 1);
    Floats out;
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

bool is_specialised(const Case& one) {
  if (one.exchange == nullptr) return false;
  if (one.plan.header.protocol == Protocol::ll)
    return engine::gpu::ll_kind(*one.exchange).has_value();
  return one.plan.header.protocol == Protocol::ll128 && engine::gpu::ll128_hops(*one.exchange) > 0;
}

TEST_F(GpuExchanges, EveryEngineGivesThePlansBits) {
  const auto began = std::chrono::steady_clock::now();
  std::set<std::string> carried;
  int plans = 0;
  int specialised = 0;
  int short_runs = 0;
  for (int ranks = 3; ranks <= 8; ++ranks) {
    GpuCluster cluster(ranks, options());
    EngineCluster with_small_slots(ranks, small_slots());
    EngineCluster with_large_slots(ranks, large_slots());
    for (const algorithm::Entry& entry : entries_by_exchange(ranks)) {
      if (entry.collective == Collective::all_to_all_v) continue;
      const Case one = case_of(entry, cluster);
      const std::string what =
          str(entry.plan_name(), " permuted, ", name(one.plan.header.protocol), ", ", ranks,
              " ranks, count ", one.count, ", max_sms ", one.max_sms, ", seed ", seed_);
      const verify::Report report = verify::verify(one.plan);
      ASSERT_TRUE(report.ok()) << what << "\n" << report.failures.front().describe();
      const Floats inputs = inexact_inputs(one);
      const Floats wanted = run_on_floats(one.plan, one.count, one.operation, inputs);
      check_on_host(with_small_slots, one, inputs, wanted);
      short_runs += check_on_host(with_large_slots, one, inputs, wanted);
      for (const bool interprets : {true, false}) {
        if (!interprets && !is_specialised(one)) continue;
        const Floats got = outputs(cluster, one, interprets, inputs);
        for (std::size_t rank = 0; rank < wanted.size(); ++rank)
          EXPECT_EQ(difference(wanted[rank], got[rank]), "")
              << "rank " << rank << (interprets ? ", interpreted" : ", by a specialised kernel");
      }
      if (HasFailure()) FAIL() << what;
      ++plans;
      if (!is_specialised(one)) continue;
      ++specialised;
      carried.insert(str(name(entry.collective), " ", name(one.plan.header.protocol)));
    }
  }
  EXPECT_GE(carried.size(), 8U);
  EXPECT_GT(short_runs, 0);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::printf(
      "%d plans, %d of them by specialised kernels and %d by the host's short path, %.1f s\n",
      plans, specialised, short_runs, took.count());
}

}  // namespace
}  // namespace unisono::test
