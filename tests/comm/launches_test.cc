// What the record says of calls on streams, from looks at them.
#include "comm/run/launches.h"

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

StreamCalls::Stamped stamped(std::uint64_t run, StreamCalls::Launch launch, std::int64_t begin_ns,
                             std::int64_t end_ns) {
  return {.run = run,
          .launch = launch,
          .begin_ns = begin_ns,
          .end_ns = end_ns,
          .has_ended = end_ns != 0};
}

TEST(Launches, BeginAndEndWhenTheirKernelsTell) {
  Launches launches(16);
  launches.saw(stamped(1, {1}, 100, 150));
  launches.saw(stamped(2, {2}, 200, 0));
  EXPECT_TRUE(launches.is_running());
  launches.saw_ended(1, 180);
  auto entries = launched({1, 2, 3});
  launches.apply(entries);
  EXPECT_EQ(entries[0].state, State::ended);
  EXPECT_EQ(entries[0].started_ns, 100);
  EXPECT_EQ(entries[0].ended_ns, 150) << "the kernel knows better than the look";
  EXPECT_EQ(entries[1].state, State::started);
  EXPECT_EQ(entries[1].started_ns, 200);
  EXPECT_EQ(entries[2].state, State::scheduled);
  launches.close(State::failed, 300);
  entries = launched({1, 2, 3});
  launches.apply(entries);
  EXPECT_EQ(entries[0].state, State::ended);
  for (const std::size_t i : {1U, 2U}) {
    EXPECT_EQ(entries[i].state, State::failed);
    EXPECT_EQ(entries[i].ended_ns, 300);
  }
  EXPECT_EQ(entries[1].started_ns, 200);
  EXPECT_EQ(entries[2].started_ns, 0);
}

TEST(Launches, ReplaysOfACapturedCallCountFromOne) {
  Launches launches(16);
  for (const std::uint64_t launch : {1U, 2U}) {
    trace::Entry entry;
    entry.launch = launch;
    entry.sequence = 40 + launch;
    entry.is_captured = true;
    launches.captured(entry);
  }
  launches.saw(stamped(1, {1, true}, 100, 110));
  launches.saw(stamped(2, {2, true}, 120, 130));
  launches.saw(stamped(3, {1, true}, 140, 0));
  launches.saw(stamped(3, {1, true}, 140, 150));
  launches.saw(stamped(4, {9, true}, 160, 170));  // nothing is known of it
  launches.saw(stamped(5, {2, true}, 180, 0));
  const auto replays = launches.replays();
  ASSERT_EQ(replays.size(), 4U);
  const std::vector<std::uint64_t> sequences{41, 42, 41, 42};
  for (std::size_t i = 0; i < replays.size(); ++i) {
    EXPECT_EQ(replays[i].sequence, sequences[i]);
    EXPECT_EQ(replays[i].replay, 1 + i / 2);
    EXPECT_EQ(replays[i].state, i == 3 ? State::started : State::ended);
    EXPECT_FALSE(replays[i].is_captured);
  }
  launches.close(State::aborted, 200);
  EXPECT_EQ(launches.replays().back().state, State::aborted);
  EXPECT_EQ(launches.replays().front().state, State::ended);
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
