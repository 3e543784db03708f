// Whole jobs in the simulated world: nothing goes wrong, whatever strikes; and what goes wrong is
// seen.

#include "chaos/play.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "chaos/canaries.h"
#include "chaos/data.h"
#include "chaos/one_sided.h"
#include "plan/check.h"
#include "plan/partners.h"
#include "plan/text.h"
#include "support/quiet.h"
#include "support/sanitized.h"
#include "verify/verify.h"

// A rank that is killed has its memory for ever, as it stands in the middle of using it. What
// living ranks leave is what chaos itself looks for.
// NOLINTNEXTLINE(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
extern "C" int __lsan_is_turned_off() { return 1; }

namespace unisono::chaos {
namespace {

constexpr std::uint64_t seeds(std::uint64_t count) {
  return test::is_sanitized ? count / 10 : count;
}

// By turns as `unisono chaos` plays them: few ranks, and more on as many nodes and on more.
Options shape_of(std::uint64_t seed) {
  constexpr std::array shapes{std::pair(4, 2), std::pair(8, 2), std::pair(8, 3)};
  const auto [ranks, nodes] = shapes[seed % shapes.size()];
  return {.ranks = ranks, .nodes = nodes};
}

std::string story_of(std::uint64_t seed, const Options& options) {
  const Scenario scenario = scenario_of(seed, options);
  const Outcome outcome = play(scenario);
  return outcome.wrong.empty() ? std::string()
                               : outcome.wrong.front() + "\n" + story(scenario, outcome);
}

TEST(Chaos, JobsThatNothingStrikesSucceed) {
  for (std::uint64_t seed = 1; seed <= seeds(100); ++seed) {
    Options options = shape_of(seed);
    options.strikes = 0;
    ASSERT_EQ(story_of(seed, options), "") << seed;
  }
}

TEST(Chaos, JobsOfEachSizeSucceed) {
  for (int ranks = 1; ranks <= 9; ++ranks)
    ASSERT_EQ(story_of(static_cast<std::uint64_t>(ranks),
                       {.ranks = ranks, .nodes = std::min(ranks, 3), .strikes = 0}),
              "")
        << ranks;
}

TEST(Chaos, WhatIsStruckIsBlamedAndTheOthersGoOn) {
  std::uint64_t failures = 0;
  for (std::uint64_t seed = 1; seed <= seeds(200); ++seed) {
    const Scenario scenario = scenario_of(seed, shape_of(seed));
    const Outcome outcome = play(scenario);
    failures += outcome.failures;
    ASSERT_TRUE(outcome.wrong.empty()) << story(scenario, outcome);
    ASSERT_TRUE(outcome.has_struck) << seed;
  }
  EXPECT_GT(failures, seeds(100));
}

// A rank that dies while others split a group that has not all ranks in order; one that is killed
// while it admits a connection; some that a lost host holds up in a call while others are in a
// split already; an abort that keeps ranks from a split, and these hold up others; a queued call
// that could not start because a connection had ended, and whose half looked complete; a rank that
// others hold up until its deadline, when it awaits one that has long died; a notice of one-sided
// steps that its connection did not take at once (914, 926, 993); an abort while ranks wait for
// signals alone (619).
TEST(Chaos, SeedsThatOnceWentWrongPass) {
  for (const std::uint64_t seed : {619, 624, 733, 914, 926, 993, 1190, 100718, 101512, 101703,
                                   106490, 105770, 111599, 124528, 1079885, 5157973})
    ASSERT_EQ(story_of(seed, {}), "") << seed;
}

// A rank that leaves after a split while another's connection to it waits for its greeting; a call
// and an exchange of others whose deadlines end together; calls that take so slow a network longer
// than their timeout.
TEST(Chaos, SeedsOfEightRanksThatOnceWentWrongPass) {
  for (const std::uint64_t seed : {47203592, 47201857, 47203984, 1201013})
    ASSERT_EQ(story_of(seed, {.ranks = 8}), "") << seed;
}

TEST(Chaos, ASeedIsTheSameRunEachTime) {
  for (std::uint64_t seed = 1; seed <= seeds(50); ++seed) {
    Options options = shape_of(seed);
    options.strikes = 2;
    const Scenario scenario = scenario_of(seed, options);
    const Outcome first = play(scenario);
    const Outcome second = play(scenario);
    EXPECT_EQ(first.hash, second.hash) << seed;
    EXPECT_EQ(first.events, second.events) << seed;
    ASSERT_EQ(first.moments.size(), second.moments.size()) << seed;
    for (std::size_t i = 0; i < first.moments.size(); ++i) {
      EXPECT_EQ(first.moments[i].time_ns, second.moments[i].time_ns);
      EXPECT_EQ(first.moments[i].what, second.moments[i].what);
    }
  }
}

TEST(Chaos, StrikesComeToManyPlaces) {
  std::set<std::string> places;
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    for (const auto& [place, times] : play(make_scenario(seed, {})).places)
      places.insert(place.second);
  EXPECT_GE(places.size(), 40U);
  // Among them those of the ways that only some runs take.
  for (const char* place :
       {"call/transport.expose", "call/transport.put_in_place", "messages/transport.signal",
        "aborted/control.write", "gets/transport.get", "register/control.write"})
    EXPECT_TRUE(places.contains(place)) << place;
}

TEST(Chaos, AWrongResultIsSeen) {
  Operation operation;
  operation.count = 5;
  const std::vector<int> members{0, 1, 2};
  Buffers buffers = make_buffers(operation, 0, members, 1);
  EXPECT_TRUE(check(operation, 0, members, 1, buffers));
  std::int32_t sums[5] = {};
  for (const int rank : members) {
    const Buffers theirs = make_buffers(operation, 0, members, rank);
    for (int i = 0; i < 5; ++i)
      sums[i] += reinterpret_cast<const std::int32_t*>(theirs.input.data())[i];
  }
  std::copy_n(reinterpret_cast<const std::byte*>(sums), sizeof sums, buffers.output.begin());
  EXPECT_FALSE(check(operation, 0, members, 1, buffers));
  buffers.output[7] ^= std::byte{1};
  EXPECT_TRUE(check(operation, 0, members, 1, buffers));
}

TEST(Chaos, AWriteAfterTheEndOfACallIsSeen) {
  Canaries canaries;
  for (std::size_t bytes = 0; bytes < 3; ++bytes) {
    std::vector<std::byte> output(bytes, std::byte{1});
    std::byte* const late = output.data();
    canaries.keep({.count = 7}, std::move(output));
    EXPECT_EQ(canaries.find_touched(), std::nullopt);
    if (bytes == 2) late[1] = std::byte{2};
  }
  EXPECT_NE(canaries.find_touched().value_or("").find("byte 1 of 2"), std::string::npos);
}

TEST(Chaos, PlansOfOneSidedStepsAreRight) {
  for (const Collective collective : {Collective::all_gather, Collective::all_reduce})
    for (int ranks = 2; ranks <= 9; ++ranks) {
      const auto plan = plan::parse(one_sided_plan(collective, ranks));
      ASSERT_TRUE(plan.ok()) << plan.error().describe();
      EXPECT_EQ(plan->header.collective, collective);
      EXPECT_NE(plan::operations(*plan) & plan::bit(plan::Operation::put), 0U);
      const verify::Report report = verify::verify(*plan);
      EXPECT_TRUE(report.ok()) << ranks << ": " << report.failures.front().describe();
    }
}

TEST(Chaos, AStoryIsShrunkToWhatItNeeds) {
  Scenario scenario = make_scenario(3, {.operations = 24, .strikes = 0});
  scenario.strikes = {{.kind = Strike::Kind::stop}, {.kind = Strike::Kind::kill}};
  const Scenario shortest = shrink(scenario, [](const Scenario& tried) {
    const auto has = [&](std::uint64_t number) {
      return std::ranges::any_of(tried.operations,
                                 [&](const Operation& one) { return one.number == number; });
    };
    return has(5) && has(17) && std::ranges::any_of(tried.strikes, [](const Strike& strike) {
             return strike.kind == Strike::Kind::kill;
           });
  });
  ASSERT_EQ(shortest.operations.size(), 2U);
  EXPECT_EQ(shortest.operations[0].number, 5U);
  EXPECT_EQ(shortest.operations[1].number, 17U);
  ASSERT_EQ(shortest.strikes.size(), 1U);
}

}  // namespace
}  // namespace unisono::chaos
