// The record says what each connection carried: for a plan that is known, every post and byte.

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "support/ranks.h"

namespace unisono {
namespace {

// Of all channels to or from a peer in one direction.
struct Carried {
  std::int64_t posts = 0;
  std::int64_t bytes = 0;
  std::int64_t busy_ns = 0;
  std::int64_t idle_ns = 0;
  std::int64_t most = 0;
  std::int64_t mean = 0;
  std::string transport;
};

Carried carried(const Communicator& world, std::string_view direction, int peer) {
  Carried out;
  const auto record = json::parse(world.dump_record());
  EXPECT_TRUE(record.ok()) << record.error().describe();
  const json::Value* const connections = record->find("connections");
  if (connections == nullptr) return out;
  for (const json::Value& one : connections->array()) {
    if (one.find("direction")->string() != direction || one.find("peer")->integer() != peer)
      continue;
    const auto figure = [&](std::string_view name) {
      const json::Value* const found = one.find(name);
      return found == nullptr ? 0 : found->integer();
    };
    out.posts += figure("posts");
    out.bytes += figure("bytes");
    out.busy_ns += figure("busy_ns");
    out.idle_ns += figure("idle_ns");
    out.most = std::max(out.most, figure("most_in_flight_bytes"));
    out.mean = std::max(out.mean, figure("mean_in_flight_bytes"));
    out.transport = one.find("transport")->string();
  }
  return out;
}

CallOptions ring() {
  CallOptions options;
  options.algorithm = "ring";
  options.protocol = Protocol::simple;
  return options;
}

Status add(Communicator& world, std::vector<float>& values) {
  return world.all_reduce(values.data(), values.data(), static_cast<std::int64_t>(values.size()),
                          DataType::float32, ReduceOperation::sum, ring());
}

class Traffic : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Traffic, testing::Values("shm", "socket"),
                         [](const auto& parameter) { return std::string(parameter.param); });

// A ring of n ranks sends 2 (n - 1) messages of an n-th of the data to the next one. From the third
// call on, those in shared memory are laid out as short runs.
TEST_P(Traffic, ARingCarriesWhatItsPlanSays) {
  constexpr std::int64_t ranks = 3, calls = 5;
  test::run_ranks({.ranks = ranks, .transport = GetParam()}, [](Communicator& world) {
    const int next = (world.rank() + 1) % ranks, before = (world.rank() + 2) % ranks;
    for (const std::int64_t part : {96, 1024}) {
      const Carried sent = carried(world, "send", next), got = carried(world, "receive", before);
      std::vector<float> values(static_cast<std::size_t>(ranks * part), 1.0F);
      for (int i = 0; i < calls; ++i) ASSERT_TRUE(add(world, values).ok());
      const auto part_bytes = part * std::int64_t{sizeof(float)};
      for (const auto& [now, then] : {std::pair(carried(world, "send", next), sent),
                                      std::pair(carried(world, "receive", before), got)}) {
        EXPECT_EQ(now.posts - then.posts, calls * 2 * (ranks - 1));
        EXPECT_EQ(now.bytes - then.bytes, calls * 2 * (ranks - 1) * part_bytes);
        EXPECT_EQ(now.transport, GetParam());
      }
    }
    EXPECT_EQ(carried(world, "send", before).posts, 0);
    EXPECT_EQ(carried(world, "receive", next).posts, 0);
    EXPECT_EQ(carried(world, "receive", before).busy_ns, 0) << "receivers time nothing";
  });
}

// The pause between two calls is idle, although the last messages of the first are seen to have
// landed only in the second.
TEST_P(Traffic, AConnectionIsIdleBetweenCalls) {
  constexpr std::chrono::milliseconds pause(200);
  test::run_ranks({.ranks = 2, .transport = GetParam()}, [&](Communicator& world) {
    std::vector<float> values(1 << 18, 1.0F);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(add(world, values).ok());
      if (i < 3) std::this_thread::sleep_for(pause);
    }
    const std::chrono::nanoseconds passed = std::chrono::steady_clock::now() - begin;
    const Carried sent = carried(world, "send", 1 - world.rank());
    EXPECT_GE(sent.idle_ns, std::chrono::nanoseconds(3 * pause).count() * 9 / 10);
    EXPECT_GT(sent.busy_ns, 0);
    EXPECT_LE(sent.busy_ns + sent.idle_ns, passed.count());
    EXPECT_GT(sent.mean, 0);
    EXPECT_LE(sent.mean, sent.most);
    EXPECT_LE(sent.most, sent.bytes);
  });
}

// Short messages through shared memory are counted, and their sender reads no clock.
TEST(TrafficInSharedMemory, ShortMessagesAreNotTimed) {
  test::run_ranks({.ranks = 2, .transport = "shm"}, [](Communicator& world) {
    std::vector<float> values(4000, 1.0F);
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(add(world, values).ok());
    const Carried sent = carried(world, "send", 1 - world.rank());
    EXPECT_GT(sent.posts, 0);
    EXPECT_EQ(sent.busy_ns + sent.idle_ns + sent.most, 0);
  });
}

// Point-to-point messages count, too.
TEST_P(Traffic, MessagesCount) {
  test::run_ranks({.ranks = 2, .transport = GetParam()}, [](Communicator& world) {
    std::vector<float> values(1000, 1.0F);
    const auto count = static_cast<std::int64_t>(values.size());
    for (int i = 0; i < 3; ++i)
      ASSERT_TRUE((world.rank() == 0 ? world.send(values.data(), count, DataType::float32, 1)
                                     : world.recv(values.data(), count, DataType::float32, 0))
                      .ok());
    const Carried one = carried(world, world.rank() == 0 ? "send" : "receive", 1 - world.rank());
    EXPECT_EQ(one.bytes, 3 * 4000);
    EXPECT_EQ(one.posts, 3);
  });
}

}  // namespace
}  // namespace unisono
