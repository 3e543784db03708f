// Which plan the simulator finds best, against simulating all of them.
#include "simulate/choose.h"

#include <gtest/gtest.h>

#include "simulate/machines.h"

namespace unisono::simulate {
namespace {

using Verdict = Candidate::Verdict;

double time_us(const Machine& machine, CollectiveCall call, const Candidate& one) {
  call.request.protocol = one.protocol;
  const auto result = simulate_collective(machine, *one.entry, call, {});
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? to_us(result->run.finished) : 0;
}

CollectiveCall call_on(const Machine& machine, Collective collective, int ranks,
                       std::int64_t count) {
  return test::call_of(collective, *place(machine, ranks), count);
}

TEST(Choose, TheFirstIsAsGoodAsTheFastestOfAllAndTheOthersVerdictsAreTrue) {
  const Machine machine = test::cluster(4, 3, 2);
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::broadcast}) {
    for (const int ranks : {2, 3, 8, 12}) {
      for (const std::int64_t count : {1, 1 << 10, 1 << 18}) {
        const CollectiveCall call = call_on(machine, collective, ranks, count);
        const auto found = choose_plan(
            machine, call, {.protocols = {Protocol::simple, Protocol::ll, Protocol::ll128}});
        ASSERT_TRUE(found.ok()) << found.error().message;
        ASSERT_EQ(found->front().verdict, Verdict::simulated);
        for (const Candidate& one : *found) {
          const double whole = time_us(machine, call, one);
          EXPECT_LE(found->front().time_us, 1.1 * whole) << one.entry->name;
          EXPECT_GE(whole, one.time_us) << one.entry->name;
          EXPECT_TRUE(one.verdict == Verdict::slower || whole == one.time_us) << one.entry->name;
          if (one.verdict == Verdict::slower) {
            EXPECT_GT(whole, found->front().time_us) << one.entry->name;
          }
        }
      }
    }
  }
}

// One node in whose ports a message is as fast in both models, but not several at once.
TEST(Choose, FlowsDecidesAmongPlansThatAreAsGood) {
  const Machine machine = test::cluster(1, 4, 1);
  int decided = 0;
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
        Collective::broadcast, Collective::reduce}) {
    const CollectiveCall call = call_on(machine, collective, 4, 1 << 20);
    const ChoiceOptions without{.max_messages_of_flows = 0};
    const auto found = choose_plan(machine, call, {});
    const auto by_log_gops = choose_plan(machine, call, without);
    ASSERT_TRUE(found.ok() && by_log_gops.ok());
    EXPECT_EQ(by_log_gops->front().flows_us, 0);
    for (const Candidate& one : *by_log_gops)
      EXPECT_TRUE(one.verdict != Verdict::simulated || by_log_gops->front().time_us <= one.time_us);
    const Candidate& best = found->front();
    if (best.flows_us == 0) continue;
    const auto in_flows = [&](const Candidate& one) {
      CollectiveCall asked = call;
      asked.request.protocol = one.protocol;
      const auto result =
          simulate_collective(machine, *one.entry, asked, {.model = NetworkModel::flows});
      return to_us(result.value().run.finished);
    };
    EXPECT_EQ(best.flows_us, in_flows(best)) << name(collective);
    EXPECT_LE(best.time_us, 1.1 * by_log_gops->front().time_us) << name(collective);
    const double before_us = in_flows(by_log_gops->front());
    EXPECT_LE(best.flows_us, before_us * 1.1) << name(collective);
    if (best.entry != by_log_gops->front().entry) {
      EXPECT_LT(best.flows_us, before_us) << name(collective);
      ++decided;
    }
  }
  EXPECT_GT(decided, 0);
}

TEST(Choose, CostsDecideAmongPlansTooLargeToSimulate) {
  const Machine machine = test::cluster(4, 3, 2);
  const auto found = choose_plan(machine, call_on(machine, Collective::all_reduce, 12, 1 << 20),
                                 {.max_messages = 0});
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_GT(found->size(), std::size_t{2});
  for (std::size_t i = 0; i < found->size(); ++i) {
    EXPECT_EQ((*found)[i].verdict, Verdict::too_large);
    EXPECT_GE((*found)[i].stated_us, (*found)[i == 0 ? 0 : i - 1].stated_us);
  }
}

TEST(Choose, ACallThatNothingCanServeIsRefusedWithTheReason) {
  const Machine machine = test::cluster(4, 3, 2);
  CollectiveCall call = call_on(machine, Collective::broadcast, 4, 100);
  call.request.root = 4;
  const auto found = choose_plan(machine, call, {});
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message.find("no algorithm supports broadcast over 4 ranks"),
            std::string::npos)
      << found.error().message;
  EXPECT_NE(found.error().message.find("root 4 is not a rank"), std::string::npos)
      << found.error().message;
}

TEST(Choose, PlansThatTheEngineCannotRunAreLeftOut) {
  const Machine machine = test::cluster(4, 3, 2);
  const CollectiveCall call = call_on(machine, Collective::all_reduce, 12, 1 << 10);
  const auto all = choose_plan(machine, call, {});
  ASSERT_TRUE(all.ok() && all->size() > 1);
  const algorithm::Entry* best = all->front().entry;
  const auto others =
      choose_plan(machine, call,
                  {.runs = [&](const algorithm::Entry& entry, const algorithm::Request& request) {
                    EXPECT_EQ(request.placement.ranks(), 12);
                    return &entry != best;
                  }});
  ASSERT_TRUE(others.ok());
  EXPECT_EQ(others->size(), all->size() - 1);
  EXPECT_EQ(others->front().verdict, Verdict::simulated);
  const auto none =
      choose_plan(machine, call, {.runs = [](const auto&, const auto&) { return false; }});
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("the engine cannot run it"), std::string::npos);
}

TEST(Choose, EndsWhenItIsTold) {
  const Machine machine = test::cluster(4, 3, 2);
  Progress progress;
  progress.stop();
  const auto found = choose_plan(machine, call_on(machine, Collective::all_reduce, 12, 100),
                                 {.progress = &progress});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().message, "the simulation was stopped");
}

}  // namespace
}  // namespace unisono::simulate
