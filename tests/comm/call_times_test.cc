// The record says where a call's time went: connecting, and combining data.

#include <gtest/gtest.h>

#include <vector>

#include "base/json.h"
#include "support/ranks.h"

namespace unisono {
namespace {

std::vector<json::Value> collectives_of(const Communicator& world) {
  auto record = json::parse(world.dump_record());
  EXPECT_TRUE(record.ok()) << record.error().describe();
  return record->find("collectives")->array();
}

std::int64_t time_of(const json::Value& entry, std::string_view name) {
  const json::Value* const found = entry.find(name);
  return found == nullptr ? 0 : found->integer();
}

std::int64_t duration_of(const json::Value& entry) {
  return time_of(entry, "ended_ns") - time_of(entry, "started_ns");
}

// A call that needs a connection makes it; one like it finds it made.
TEST(CallTimes, ConnectingIsOfTheCallThatConnects) {
  test::run_ranks({.ranks = 3}, [](Communicator& world) {
    std::vector<float> values(1 << 18, 1.0F);
    for (int i = 0; i < 4; ++i)
      ASSERT_TRUE(world
                      .all_reduce(values.data(), values.data(),
                                  static_cast<std::int64_t>(values.size()), DataType::float32)
                      .ok());
    const auto entries = collectives_of(world);
    ASSERT_EQ(entries.size(), 4U);
    EXPECT_GT(time_of(entries[0], "connecting_ns"), 0);
    EXPECT_LE(time_of(entries[0], "connecting_ns"), duration_of(entries[0]));
    for (int i = 1; i < 4; ++i) EXPECT_EQ(time_of(entries[i], "connecting_ns"), 0) << i;
  });
}

// A small call's entry is written in part where the slot holds one like it: not the one that
// connected.
TEST(CallTimes, AnEntryIsNotTakenForTheOneItReplaces) {
  const SettingValues settings{{"UNISONO_RECORD_SLOTS", "1"}};
  test::run_ranks({.ranks = 2, .settings = settings}, [](Communicator& world) {
    float value = 1;
    const auto add = [&] { return world.all_reduce(&value, &value, 1, DataType::float32); };
    ASSERT_TRUE(add().ok());
    EXPECT_GT(time_of(collectives_of(world)[0], "connecting_ns"), 0);
    for (int i = 1; i < 4; ++i) {
      ASSERT_TRUE(add().ok());
      EXPECT_EQ(time_of(collectives_of(world)[0], "connecting_ns"), 0) << i;
    }
  });
}

TEST(CallTimes, ConnectingIsOfMessagesToo) {
  test::run_ranks({.ranks = 2}, [](Communicator& world) {
    float value = 1;
    for (int i = 0; i < 2; ++i) {
      const auto status = world.rank() == 0 ? world.send(&value, 1, DataType::float32, 1)
                                            : world.recv(&value, 1, DataType::float32, 0);
      ASSERT_TRUE(status.ok()) << status.error().describe();
    }
    const auto record = json::parse(world.dump_record());
    ASSERT_TRUE(record.ok());
    const auto& messages = record->find("messages")->array();
    ASSERT_EQ(messages.size(), 2U);
    EXPECT_GT(time_of(messages[0], "connecting_ns"), 0);
    EXPECT_EQ(time_of(messages[1], "connecting_ns"), 0);
  });
}

// Reductions of large pieces say how long combining took; what combines nothing says nothing.
TEST(CallTimes, ReducingIsOfCallsThatCombine) {
  for (const std::string_view algorithm : {"ring", "recursive_doubling"}) {
    test::run_ranks({.ranks = 2}, [&](Communicator& world) {
      constexpr std::int64_t count = 1 << 18;
      std::vector<float> values(count, 1.0F);
      std::vector<float> all(2 * count);
      CallOptions options;
      options.algorithm = std::string(algorithm);
      // At once, laid out as a short run where that can be, and as a task.
      for (int i = 0; i < 3; ++i)
        ASSERT_TRUE(world
                        .all_reduce(values.data(), values.data(), count, DataType::float32,
                                    ReduceOperation::sum, options)
                        .ok());
      ASSERT_TRUE(world.all_gather(values.data(), all.data(), count, DataType::float32).ok());
      ASSERT_TRUE(world.all_reduce(values.data(), values.data(), 16, DataType::float32).ok());
      const auto entries = collectives_of(world);
      ASSERT_EQ(entries.size(), 5U);
      for (int i = 0; i < 3; ++i) {
        EXPECT_GT(time_of(entries[i], "reducing_ns"), 0) << algorithm << i;
        EXPECT_LE(time_of(entries[i], "reducing_ns"), duration_of(entries[i])) << algorithm << i;
      }
      EXPECT_EQ(time_of(entries[3], "reducing_ns"), 0) << "an all-gather";
      EXPECT_EQ(time_of(entries[4], "reducing_ns"), 0) << "64 bytes";
    });
  }
}

}  // namespace
}  // namespace unisono
