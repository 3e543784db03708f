// Windows in jobs of chaos: such jobs succeed or blame what was struck, are the same run each time,
// and what nobody may write is seen.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "chaos/play.h"
#include "chaos/window_memory.h"
#include "support/quiet.h"
#include "support/sanitized.h"

namespace unisono::chaos {
namespace {

// The first seeds of jobs with windows, as many as it says.
std::vector<std::uint64_t> seeds_with_windows(std::size_t count) {
  std::vector<std::uint64_t> out;
  for (std::uint64_t seed = 1; out.size() < (test::is_sanitized ? count / 10 + 1 : count); ++seed)
    if (has_windows(seed)) out.push_back(seed);
  return out;
}

Options shape_of(std::uint64_t seed, int strikes) {
  return {.ranks = seed % 2 == 0 ? 4 : 8, .nodes = 2, .strikes = strikes};
}

TEST(WindowsInChaos, AreWhatTheModelSays) {
  for (const int strikes : {0, 1})
    for (const std::uint64_t seed : seeds_with_windows(60)) {
      const Scenario scenario = scenario_of(seed, shape_of(seed, strikes));
      const Outcome outcome = play(scenario);
      ASSERT_TRUE(outcome.wrong.empty()) << outcome.wrong.front() << "\n"
                                         << story(scenario, outcome);
    }
}

// Though memory lies elsewhere each time.
TEST(WindowsInChaos, ASeedIsTheSameRunEachTime) {
  std::vector<std::vector<std::byte>> between;
  for (const std::uint64_t seed : seeds_with_windows(20)) {
    const Scenario scenario = scenario_of(seed, shape_of(seed, 2));
    const Outcome first = play(scenario);
    between.emplace_back(100'000 + 1'000 * seed);
    const Outcome second = play(scenario);
    EXPECT_EQ(first.hash, second.hash) << seed;
    EXPECT_EQ(first.events, second.events) << seed;
    EXPECT_EQ(story(scenario, first), story(scenario, second)) << seed;
  }
}

TEST(WindowsInChaos, AreStruckWhereTheyAreMadeAndPutTo) {
  std::set<std::string> places;
  std::set<bool> shared;
  for (const std::uint64_t seed : seeds_with_windows(20)) {
    shared.insert(hosts_share_memory(seed));
    for (const auto& [place, times] : play(make_scenario(seed, {})).places)
      places.insert(place.second);
  }
  for (const char* place : {"window/control.write", "puts/memory.write", "puts/thread.sleep"})
    EXPECT_TRUE(places.contains(place)) << place;
  EXPECT_TRUE(shared.contains(false));
  EXPECT_TRUE(test::is_sanitized || shared.contains(true));
}

class MemoryOfAWindow : public testing::Test {
 protected:
  // Of ranks 0 to 3 on two nodes, this is that of rank 2; rank 0 is its neighbour.
  static constexpr int me = 2;
  static constexpr int sender = 0;

  void put(int round, std::size_t bytes) {
    const auto message = memory_.message(sender, me, round);
    std::memcpy(memory_.window().data() + memory_.offset_of(sender), message.data(), bytes);
  }

  WindowMemory memory_{{.kind = Operation::Kind::windows, .count = 50, .type = DataType::uint8},
                       {0, 1, 2, 3},
                       me,
                       2};
};

TEST_F(MemoryOfAWindow, MayHoldPartsOfWhatWasPut) {
  EXPECT_EQ(memory_.peers(), (std::vector<int>{2, 3, 0, 1}));
  EXPECT_TRUE(memory_.is_neighbour(0));
  EXPECT_FALSE(memory_.is_neighbour(1));
  EXPECT_NE(memory_.message(sender, me, 0), memory_.message(sender, me, 1));
  EXPECT_NE(memory_.message(sender, me, 0), memory_.message(sender, sender, 0));
  put(0, 50);
  EXPECT_EQ(memory_.find_touched(), std::nullopt);
  put(1, 20);
  EXPECT_EQ(memory_.find_touched(), std::nullopt);
}

TEST_F(MemoryOfAWindow, ShowsWhatNobodyMayWrite) {
  // Before and behind it, in the slots of two ranks, and behind the slots, what no round has put.
  std::byte* const begin = memory_.window().data();
  for (const std::ptrdiff_t at :
       {std::ptrdiff_t{-1}, static_cast<std::ptrdiff_t>(memory_.window().size()),
        static_cast<std::ptrdiff_t>(memory_.offset_of(1)), std::ptrdiff_t{7}}) {
    const std::byte before = std::exchange(begin[at], std::byte{0x77});
    EXPECT_NE(memory_.find_touched().value_or("").find("a rank that may not"), std::string::npos)
        << at;
    begin[at] = before;
  }
  EXPECT_EQ(memory_.find_touched(), std::nullopt);
  memory_.close();
  EXPECT_EQ(memory_.find_touched(), std::nullopt);
  put(0, 1);
  EXPECT_NE(memory_.find_touched().value_or("").find("after all puts"), std::string::npos);
}

}  // namespace
}  // namespace unisono::chaos
