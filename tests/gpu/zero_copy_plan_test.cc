// What the interpreter's kernel does in a launch that posts is the plan that plan::ZeroCopy makes
// and the verifier proves: message by message, for any pattern of mapped buffers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <tuple>
#include <utility>

#include "base/str.h"
#include "engine/gpu/address_exchange.h"
#include "support/emulated_device.h"
#include "support/gpu_cluster.h"
#include "verify/verify.h"

namespace unisono::test {
namespace {

constexpr int slots = 64;

using Connection = std::tuple<int, int, int>;  // sender, receiver, channel
// Of the messages and tokens of each: whether it goes through a slot.
using InSlots = std::map<Connection, std::vector<bool>>;

InSlots in_slots(const plan::Plan& plan) {
  InSlots out;
  for (const plan::RankProgram& program : plan.programs)
    for (const plan::ThreadBlock& block : program.thread_blocks) {
      if (block.send_peer < 0) continue;
      auto& messages = out[{program.rank, block.send_peer, block.channel}];
      bool has_put = false;
      for (const plan::Node& node : block.body) {
        const plan::Operation operation = std::get<plan::Step>(node).operation;
        has_put |= operation == plan::Operation::put;
        if (plan::sends(operation)) messages.push_back(!std::exchange(has_put, false));
      }
    }
  return out;
}

class GpuZeroCopyPlan : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    std::string why;
    if (usable_devices(&why).empty()) GTEST_SKIP() << why;
  }

  // All, or at random.
  plan::Reach pattern(bool is_all) {
    plan::Reach out(GetParam(), true);
    for (int from = 0; from < GetParam(); ++from)
      for (int to = 0; to < GetParam(); ++to)
        if (!is_all) out.set(from, to, random_() % 2 == 0);
    return out;
  }

  static algorithm::Request request_of(const algorithm::Entry& entry, bool in_place) {
    return {.collective = entry.collective,
            .placement = topo::Placement::single_node(GetParam()),
            .root = has_root(entry.collective) ? GetParam() - 1 : 0,
            .in_place = in_place};
  }

  // How many messages were put.
  int compare(const algorithm::Entry& entry, const algorithm::Request& request,
              const plan::Plan& plan, const plan::Reach& reach) {
    const plan::Plan wanted = plan::ZeroCopy(plan, engine::gpu::zero_copy_limits()).under(reach);
    const verify::Report report = verify::verify(wanted);
    EXPECT_TRUE(report.ok()) << report.failures.front().describe();
    GpuCluster cluster(GetParam(),
                       {.engine = {.slots = slots, .slot_bytes = 4096, .zero_copy_min_bytes = 1},
                        .sees = [&](int rank, int peer) { return reach.has(peer, rank); }});
    // Whole chunks of one tile, all of which can be put.
    const std::int64_t count = 16 * plan.header.chunks_per_block;
    Problem problem{entry.collective, GetParam(), request.root, count, ReduceOperation::sum, {}};
    if (entry.collective == Collective::all_to_all_v)
      problem.counts.assign(static_cast<std::size_t>(GetParam()),
                            std::vector(static_cast<std::size_t>(GetParam()), count));
    const std::string wrong = cluster.run({.entry = &entry,
                                           .request = request,
                                           .problem = problem,
                                           .seed = random_(),
                                           .is_aligned = true});
    EXPECT_EQ(wrong, "");
    if (!wrong.empty()) return 0;
    int puts = 0;
    for (auto& [connection, messages] : in_slots(wanted)) {
      const auto [from, to, channel] = connection;
      EXPECT_LE(messages.size(), std::size_t{slots});
      puts += static_cast<int>(std::ranges::count(messages, false));
      messages.resize(slots);
      EXPECT_EQ(cluster.used_slots(to, from, channel), messages)
          << "from rank " << from << " to rank " << to << " on channel " << channel;
    }
    return puts;
  }

  std::uint64_t seed_ = test_seed();
  std::mt19937_64 random_{seed_};
};

TEST_P(GpuZeroCopyPlan, TheKernelPutsWhatTheVerifiedPlanPuts) {
  int plans = 0;
  int puts = 0;
  for (const algorithm::Entry& entry : algorithm::entries())
    for (const bool in_place : {false, true}) {
      // Ranks that are no root would be out of place.
      if (in_place && has_root(entry.collective)) continue;
      if (entry.collective == Collective::barrier) continue;
      const algorithm::Request request = request_of(entry, in_place);
      const auto plan = algorithm::make_plan(entry, request);
      if (!plan.ok()) continue;
      for (const bool is_all : {false, true}) {
        puts += compare(entry, request, *plan, pattern(is_all));
        ++plans;
        if (HasFailure())
          FAIL() << entry.plan_name() << (in_place ? " in place" : "")
                 << (is_all ? ", all are reached" : ", at random") << ", seed " << seed_;
      }
    }
  EXPECT_GT(puts, 0);
  std::printf("%d plans, %d puts\n", plans, puts);
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuZeroCopyPlan, testing::Values(2, 3, 4, 5, 8),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace unisono::test
