// What the record says of calls on streams, from looks at them.
#include "comm/run/call_log.h"

#include <gtest/gtest.h>

#include <vector>

namespace unisono::comm {
namespace {

using trace::State;

std::vector<trace::Entry> launched(std::initializer_list<std::uint64_t> launches) {
  std::vector<trace::Entry> entries;
  for (const std::uint64_t launch : launches) {
    trace::Entry& entry = entries.emplace_back();
    entry.launch = launch;
    entry.launched_ns = 1;
  }
  return entries;
}

TEST(Launches, EndAtTheFirstLookThatFoundThemOver) {
  Launches launches(16);
  launches.saw_ended(0, 5);
  launches.saw_ended(2, 10);
  launches.saw_ended(2, 20);
  launches.saw_ended(4, 30);
  auto entries = launched({1, 2, 3, 4, 5});
  launches.apply(entries);
  const std::vector<std::int64_t> ends{10, 10, 30, 30, 0};
  for (std::size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(entries[i].ended_ns, ends[i]) << i;
    EXPECT_EQ(entries[i].state, ends[i] == 0 ? State::scheduled : State::ended) << i;
  }
}

TEST(Launches, ThatNoLookFoundOverCloseWithTheCommunicator) {
  Launches launches(16);
  launches.saw_ended(1, 10);
  launches.close(State::failed, 40);
  launches.close(State::aborted, 50);
  launches.saw_ended(2, 60);
  auto entries = launched({1, 2, 3});
  launches.apply(entries);
  EXPECT_EQ(entries[0].state, State::ended);
  for (const std::size_t i : {1U, 2U}) {
    EXPECT_EQ(entries[i].state, State::failed);
    EXPECT_EQ(entries[i].ended_ns, 40);
  }
}

TEST(Launches, OfTheHostAndOfGraphsAreLeftAsTheyAre) {
  Launches launches(16);
  launches.close(State::aborted, 40);
  auto entries = launched({0, 1, 1});
  entries[1].is_captured = true;
  entries[2].state = State::failed;
  entries[2].ended_ns = 7;
  const auto before = entries;
  launches.apply(entries);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(entries[i].state, before[i].state) << i;
    EXPECT_EQ(entries[i].ended_ns, before[i].ended_ns) << i;
  }
}

TEST(Launches, KeepAsManyLooksAsTheRecordHasEntries) {
  Launches launches(2);
  for (const std::int64_t launch : {1, 2, 3})
    launches.saw_ended(static_cast<std::uint64_t>(launch), 10 * launch);
  auto entries = launched({1, 3});
  launches.apply(entries);
  EXPECT_EQ(entries[0].ended_ns, 20) << "over at the latest then";
  EXPECT_EQ(entries[1].ended_ns, 30);
}

}  // namespace
}  // namespace unisono::comm
