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

TEST(Choose, TheFirstIsTheFastestOfAllAndTheOthersVerdictsAreTrue) {
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
          EXPECT_GE(whole, found->front().time_us) << one.entry->name;
          EXPECT_GE(whole, one.time_us) << one.entry->name;
          EXPECT_TRUE(one.verdict == Verdict::slower || whole == one.time_us) << one.entry->name;
        }
      }
    }
  }
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
