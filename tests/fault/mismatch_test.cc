// Ranks whose calls do not match: nobody gets wrong data, and both calls are named.

#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "base/fingerprint.h"
#include "base/str.h"
#include "support/golden.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using namespace std::chrono_literals;
using test::run_ranks;

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// What a rank calls; `count` is of elements of 4 bytes.
struct Calls {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  ReduceOperation operation = ReduceOperation::sum;
  int root = 0;
  std::int64_t more = 0;  // elements

  std::string describe(std::int64_t count) const {
    Fingerprint fingerprint{.collective = collective};
    if (collective != Collective::barrier) {
      fingerprint.type = type;
      fingerprint.count = count_of(count);
    }
    if (is_reduction(collective)) fingerprint.operation = operation;
    if (has_root(collective)) fingerprint.root = static_cast<std::uint32_t>(root);
    return describe_call(pack(fingerprint));
  }
  // The same bytes, whatever the type.
  std::int64_t count_of(std::int64_t count) const {
    return (count + more) * 4 / static_cast<std::int64_t>(size_bytes(type));
  }
};
struct Mismatch {
  const char* name;
  Calls most;
  Calls one;  // of rank 1
};

const Mismatch mismatches[] = {
    {"Type", {}, {.type = DataType::int32}},
    {"TypeAndCount", {}, {.type = DataType::float64}},
    {"Operation", {}, {.operation = ReduceOperation::max}},
    {"Count", {}, {.more = 2}},
    {"AllReduceAndBroadcast", {}, {.collective = Collective::broadcast}},
    {"AllReduceAndReduce", {}, {.collective = Collective::reduce}},
    {"AllReduceAndBarrier", {}, {.collective = Collective::barrier}},
    {"GatheredTypes",
     {.collective = Collective::all_gather},
     {.collective = Collective::all_gather, .type = DataType::int32}},
    {"AllGatherAndAllToAll",
     {.collective = Collective::all_gather},
     {.collective = Collective::all_to_all}},
    {"ReduceScatterAndAllToAll",
     {.collective = Collective::reduce_scatter},
     {.collective = Collective::all_to_all}},
    {"RootOfBroadcast",
     {.collective = Collective::broadcast},
     {.collective = Collective::broadcast, .root = 1}},
    {"RootOfReduce",
     {.collective = Collective::reduce, .root = 2},
     {.collective = Collective::reduce, .root = 1}},
    {"ScatterAndBroadcast",
     {.collective = Collective::scatter},
     {.collective = Collective::broadcast}},
};

// Empty where the call succeeded with the right data, or defines none. The call's data is there
// when `before` runs.
std::string outcome(
    Communicator& communicator, const Calls& calls, std::int64_t count, const CallOptions& options,
    const std::function<void()>& before = [] {}) {
  return test::run_checked(communicator, {.problem = {.collective = calls.collective,
                                                      .ranks = communicator.size(),
                                                      .root = calls.root,
                                                      .count = calls.count_of(count),
                                                      .operation = calls.operation,
                                                      .counts = {}},
                                          .type = calls.type,
                                          .options = options,
                                          .run = [&](Communicator& caller, const Call& call, auto) {
                                            before();
                                            return caller.run(call);
                                          }});
}

class Mismatches : public testing::TestWithParam<std::tuple<const char*, int>> {};
INSTANTIATE_TEST_SUITE_P(Transports, Mismatches,
                         testing::Values(std::tuple{"shm", 1}, std::tuple{"socket", 1},
                                         std::tuple{"socket", 3}),
                         [](const auto& parameters) {
                           return str(std::get<0>(parameters.param), "_",
                                      std::get<1>(parameters.param), "_nodes");
                         });

// Every kind, in every protocol, small and of several tiles. A rank may have got what it wants
// before another finds the mismatch, but not what it does not want; and somebody finds it.
TEST_P(Mismatches, NameBothCallsAndGiveNobodyWrongData) {
  const auto [transport, nodes] = GetParam();
  constexpr int ranks = 3;
  struct Case {
    const Mismatch* mismatch;
    Protocol protocol;
    std::int64_t count;
  };
  std::vector<Case> cases;
  for (const Mismatch& mismatch : mismatches) {
    const auto any = static_cast<Protocol>(cases.size() % protocol_count);
    for (const Protocol protocol : {Protocol::simple, Protocol::ll, Protocol::ll128})
      if (transport == std::string_view("shm") || protocol == any)  // which a socket does not tell
        cases.push_back({&mismatch, protocol, 2});
    if (nodes == 1) cases.push_back({&mismatch, any, 60'000});
  }
  std::vector<std::array<std::string, ranks>> outcomes(cases.size());
  std::barrier all(ranks);  // they begin each call together: no deadline passes before
  run_ranks({.ranks = ranks, .nodes = nodes, .transport = transport}, [&](Communicator& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const auto& [mismatch, protocol, count] = cases[i];
      auto group = world.split(0, world.rank());
      ASSERT_TRUE(group.ok()) << group.error().describe();
      const Calls& calls = rank == 1 ? mismatch->one : mismatch->most;
      outcomes[i][rank] = outcome(*group, calls, count, {.protocol = protocol, .timeout = 700ms},
                                  [&] { all.arrive_and_wait(); });
      // That a rank leaves now is not what the others should hear.
      ASSERT_TRUE(world.barrier().ok());
    }
  });
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto& [mismatch, protocol, count] = cases[i];
    const std::string where = str(mismatch->name, ", ", name(protocol), ", ", count, ": ");
    int told = 0;
    for (const std::string& said : outcomes[i]) {
      EXPECT_FALSE(contains(said, "expected")) << where << said;
      if (said.empty()) continue;
      ++told;
      // Of a rank on another node that has done its part of a call nobody tells which call that
      // was.
      if (nodes > 1 && contains(said, "is not in a call")) continue;
      EXPECT_TRUE(contains(said, "peer error: ")) << where << said;
      EXPECT_TRUE(contains(said, mismatch->most.describe(count))) << where << said;
      EXPECT_TRUE(contains(said, "rank 1 calls " + mismatch->one.describe(count))) << where << said;
    }
    EXPECT_GT(told, 0) << where;
  }
}

// A call that starts on a connection which a peer has closed hears what the ranks found.
TEST_P(Mismatches, TellBothCallsToWhoComesLate) {
  const auto [transport, nodes] = GetParam();
  run_ranks({.ranks = 3, .nodes = nodes, .transport = transport}, [&](Communicator& world) {
    std::vector<std::int32_t> data(4);
    for (int late = 0; late < 20; ++late) {
      auto group = world.split(0, world.rank());
      ASSERT_TRUE(group.ok()) << group.error().describe();
      const auto run = [&](std::int64_t count, DataType type) {
        CallOptions options;
        options.algorithm = "one_shot";
        return group->all_reduce(data.data(), data.data(), count, type, ReduceOperation::sum,
                                 options);
      };
      ASSERT_TRUE(run(4, DataType::int32).ok());
      ASSERT_TRUE(world.barrier().ok());
      // Each delay reaches the same errors, by another way.
      if (world.rank() == 2) std::this_thread::sleep_for(late * 50us);
      const Status status = run(3, world.rank() == 1 ? DataType::float32 : DataType::int32);
      ASSERT_FALSE(status.ok());
      const std::string& said = status.error().message;
      EXPECT_TRUE(contains(said, " calls all_reduce of 3 int32, sum")) << said;
      EXPECT_TRUE(contains(said, "rank 1 calls all_reduce of 3 float32, sum")) << said;
      ASSERT_TRUE(world.barrier().ok());
    }
  });
}

// A call like the last one with the same buffers takes a shorter way.
TEST(Mismatch, IsFoundAfterManyCallsThatMatch) {
  run_ranks({.ranks = 2}, [&](Communicator& world) {
    std::array<std::int32_t, 2> data{};
    Status status;
    for (int i = 0; i < 100 && status.ok(); ++i)
      status = world.all_reduce(data.data(), data.data(), 2, DataType::int32);
    ASSERT_TRUE(status.ok()) << status.error().describe();
    const auto type = world.rank() == 0 ? DataType::int32 : DataType::float32;
    status = world.all_reduce(data.data(), data.data(), 2, type);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().kind, ErrorKind::peer) << status.error().describe();
    EXPECT_EQ(status.error().peer, -1);
    EXPECT_TRUE(contains(status.error().message, "rank 0 calls all_reduce of 2 int32, sum"))
        << status.error().message;
    EXPECT_TRUE(contains(status.error().message, "rank 1 calls all_reduce of 2 float32, sum"))
        << status.error().message;
  });
}

// Steps that reach into a peer's memory begin when the peer has told where that is.
TEST(Mismatch, IsFoundBeforeOneSidedSteps) {
  const std::string plan = test::read_golden("one_sided.plan");
  for (const char* transport : {"shm", "socket"})
    for (const std::int64_t count : {3, 70'000})
      for (const auto operation : {ReduceOperation::sum, ReduceOperation::max})
        run_ranks({.ranks = 2, .transport = transport}, [&](Communicator& world) {
          ASSERT_TRUE(world.register_plans(std::span(&plan, 1)).ok());
          CallOptions options;
          options.algorithm = "one_sided";
          Calls calls{.type = DataType::int32};
          EXPECT_EQ(outcome(world, calls, count, options), "");
          if (world.rank() == 1) calls.operation = operation;
          const std::string said = outcome(world, calls, count, options);
          if (operation == ReduceOperation::sum) {
            EXPECT_EQ(said, "");
          } else {
            EXPECT_TRUE(contains(said, str("rank 0 calls all_reduce of ", count, " int32, sum")))
                << said;
            EXPECT_TRUE(contains(said, str("rank 1 calls all_reduce of ", count, " int32, max")))
                << said;
          }
        });
}

// The ranks wait for each other at the two ends of different plans, and nothing arrives.
class MismatchOnNodes : public testing::TestWithParam<int> {};

TEST_P(MismatchOnNodes, IsFoundAtTheDeadlineOfPlansThatDoNotMeet) {
  std::barrier both(2);
  run_ranks({.ranks = 2, .nodes = GetParam()}, [&](Communicator& world) {
    ASSERT_TRUE(world.barrier().ok());
    both.arrive_and_wait();
    std::array<float, 4> data{};
    CallOptions options;
    options.timeout = 500ms;
    const bool odd = world.rank() == 1;
    options.protocol = odd ? Protocol::ll : Protocol::simple;
    const Status status =
        world.all_reduce(data.data(), data.data(), 4, odd ? DataType::int32 : DataType::float32,
                         ReduceOperation::sum, options);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().kind, ErrorKind::peer) << status.error().describe();
    EXPECT_EQ(status.error().peer, -1);
    EXPECT_TRUE(contains(status.error().message, "rank 0 calls all_reduce of 4 float32, sum"))
        << status.error().message;
    EXPECT_TRUE(contains(status.error().message, "rank 1 calls all_reduce of 4 int32, sum"))
        << status.error().message;
  });
}

INSTANTIATE_TEST_SUITE_P(Nodes, MismatchOnNodes, testing::Values(1, 2));

}  // namespace
}  // namespace unisono
