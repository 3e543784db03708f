// Every collective over real communicators: threads as ranks, real bootstrap, both transports.

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "algorithm/algorithm.h"
#include "base/settings.h"
#include "base/str.h"
#include "support/ranks.h"
#include "support/sanitized.h"

namespace unisono {
namespace {

using test::CheckedCall;
using test::Problem;
using test::RanksOptions;
using test::run_checked;
using test::run_ranks;

constexpr Collective collectives[] = {Collective::all_reduce,     Collective::all_gather,
                                      Collective::reduce_scatter, Collective::broadcast,
                                      Collective::reduce,         Collective::gather,
                                      Collective::scatter,        Collective::all_to_all,
                                      Collective::all_to_all_v,   Collective::barrier};

Problem problem_of(Collective collective, int ranks, std::int64_t count, int root,
                   ReduceOperation operation, std::uint64_t seed) {
  Problem problem{collective, ranks, has_root(collective) ? root : 0, count, operation, {}};
  if (collective == Collective::all_to_all_v) {
    std::mt19937_64 random(seed);
    problem.counts.assign(static_cast<std::size_t>(ranks), {});
    for (auto& row : problem.counts)
      for (int i = 0; i < ranks; ++i)
        row.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count + 1)));
  }
  return problem;
}

constexpr std::int64_t large_count = test::is_sanitized ? 9'001 : 150'001;

struct World {
  int ranks;
  int nodes;
  const char* transport;
};

class OnWorld : public testing::TestWithParam<World> {};

TEST_P(OnWorld, EveryCollectiveDeliversBySelection) {
  const World world = GetParam();
  run_ranks(
      {.ranks = world.ranks, .nodes = world.nodes, .transport = world.transport},
      [&](Communicator& communicator) {
        std::uint64_t seed = 1;
        for (Collective collective : collectives)
          for (bool in_place : {false, true})
            for (std::int64_t count : {0, 1, world.ranks + 1, test::is_sanitized ? 515 : 4099}) {
              if (collective == Collective::all_to_all_v && in_place) continue;
              ++seed;
              const Problem problem = problem_of(collective, world.ranks, count, world.ranks - 1,
                                                 ReduceOperation::sum, seed);
              const std::string wrong =
                  run_checked(communicator, {problem, DataType::float32, in_place, {}, seed});
              ASSERT_EQ(wrong, "")
                  << name(collective) << " count " << count << " in place " << in_place;
            }
      });
}

TEST_P(OnWorld, EveryAlgorithmDeliversInEveryProtocol) {
  const World world = GetParam();
  run_ranks(
      {.ranks = world.ranks, .nodes = world.nodes, .transport = world.transport},
      [&](Communicator& communicator) {
        std::uint64_t seed = 1;
        for (const algorithm::Entry& entry : algorithm::entries())
          for (Protocol protocol : {Protocol::simple, Protocol::ll, Protocol::ll128}) {
            ++seed;
            // Each of the worlds leaves out others.
            if (test::is_sanitized && (seed / 3 + seed + world.ranks) % 3 != 0) continue;
            const Problem problem =
                problem_of(entry.collective, world.ranks, 1013, 0, ReduceOperation::sum, seed);
            CallOptions options;
            options.algorithm = entry.name;
            options.protocol = protocol;
            ASSERT_EQ(run_checked(communicator, {problem, DataType::int32, false, options, seed}),
                      "")
                << entry.plan_name() << " " << name(protocol);
          }
      });
}

INSTANTIATE_TEST_SUITE_P(Worlds, OnWorld,
                         testing::Values(World{1, 1, ""}, World{2, 1, "shm"}, World{2, 1, "socket"},
                                         World{3, 1, "shm"}, World{5, 2, ""}, World{8, 2, ""},
                                         World{4, 4, ""}),
                         [](const auto& tested) {
                           return str(tested.param.ranks, "ranks", tested.param.nodes, "nodes",
                                      tested.param.transport);
                         });

// Slots of 512 KiB and offers from 256 KiB make much memory to look after in a sanitized build.
SettingValues sizes_for_large_calls() {
  if (!test::is_sanitized) return {};
  return {{"UNISONO_SIMPLE_SLOT_BYTES", "32KiB"},
          {"UNISONO_ZERO_COPY", "1"},
          {"UNISONO_ZERO_COPY_MIN_BYTES", "16KiB"}};
}

TEST(LargeCollectives, UseZeroCopyInManyTiles) {
  for (const char* transport : {"shm", "socket"})
    run_ranks(
        {.ranks = 3, .transport = transport, .settings = sizes_for_large_calls()},
        [&](Communicator& communicator) {
          std::uint64_t seed = 77;
          for (Collective collective : collectives) {
            const Problem problem =
                problem_of(collective, 3, large_count, 1, ReduceOperation::sum, ++seed);
            ASSERT_EQ(run_checked(communicator, {problem, DataType::float64, false, {}, seed}), "")
                << name(collective) << " over " << transport;
          }
        });
}

TEST(Collectives, EveryTypeAndOperationAgreesOnTwoNodes) {
  run_ranks({.ranks = 4, .nodes = 2}, [&](Communicator& communicator) {
    std::uint64_t seed = 5;
    for (int type = 0; type < data_type_count; ++type)
      for (int operation = 0; operation < reduce_operation_count; ++operation) {
        const Problem problem = problem_of(Collective::all_reduce, 4, 301, 0,
                                           static_cast<ReduceOperation>(operation), ++seed);
        ASSERT_EQ(
            run_checked(communicator, {problem, static_cast<DataType>(type), false, {}, seed}), "")
            << name(static_cast<DataType>(type)) << " "
            << name(static_cast<ReduceOperation>(operation));
      }
  });
}

TEST(Collectives, AsynchronousCallsCompleteInAnyOrderOfWaiting) {
  run_ranks({.ranks = 3}, [&](Communicator& communicator) {
    constexpr int calls = 20;
    std::vector<std::vector<std::int64_t>> inputs, outputs(calls);
    std::vector<Work> works;
    for (int i = 0; i < calls; ++i) {
      inputs.emplace_back(100 + i, communicator.rank() + i);
      outputs[static_cast<std::size_t>(i)].resize(inputs.back().size(), -1);
    }
    for (std::size_t i = 0; i < calls; ++i) {
      auto work = communicator.submit({.collective = Collective::all_reduce,
                                       .input = inputs[i].data(),
                                       .output = outputs[i].data(),
                                       .count = static_cast<std::int64_t>(inputs[i].size()),
                                       .type = DataType::int64});
      ASSERT_TRUE(work.ok()) << work.error().describe();
      works.push_back(*work);
    }
    std::mt19937 random(static_cast<unsigned>(communicator.rank()));
    std::shuffle(works.begin(), works.end(), random);
    for (Work& work : works) {
      const Status status = work.wait();
      ASSERT_TRUE(status.ok()) << status.error().describe();
    }
    for (std::size_t i = 0; i < calls; ++i)
      for (std::int64_t element : outputs[i])
        ASSERT_EQ(element, 3 * static_cast<std::int64_t>(i) + 3);
  });
}

// Nobody waits: the progress thread alone must bring the call home.
// The same buffers again and again go a shorter way, which must not take another call for the last.
TEST(Collectives, ACallLikeTheLastIsToldFromOneThatDiffersInOneThing) {
  run_ranks({.ranks = 2}, [&](Communicator& communicator) {
    const float mine = communicator.rank() == 0 ? 2 : 3;
    std::vector<float> input(8, mine), output(8), expected(8);
    const auto call = [&](std::int64_t count, ReduceOperation operation, float result,
                          const CallOptions& options = {}) {
      std::fill(output.begin(), output.end(), -1.0F);
      std::fill(expected.begin(), expected.end(), -1.0F);
      std::fill_n(expected.begin(), count, result);
      const Status status = communicator.all_reduce(input.data(), output.data(), count,
                                                    DataType::float32, operation, options);
      ASSERT_TRUE(status.ok()) << status.error().describe();
      EXPECT_EQ(output, expected) << count << " " << name(operation);
    };
    const CallOptions by_ring{.algorithm = "ring"};
    for (int round = 0; round < 3; ++round) {
      for (int again = 0; again < 3; ++again) call(4, ReduceOperation::sum, 5);
      for (int again = 0; again < 3; ++again) call(5, ReduceOperation::sum, 5);
      for (int again = 0; again < 3; ++again) call(5, ReduceOperation::product, 6);
      for (int again = 0; again < 3; ++again) call(5, ReduceOperation::product, 6, by_ring);
      // Its own scalar is 1 where none is given.
      call(5, ReduceOperation::pre_multiplied_sum, 5);
    }
    for (const int root : {0, 0, 1, 1, 0}) {
      output.assign(8, mine);
      ASSERT_TRUE(
          communicator.broadcast(output.data(), output.data(), 8, DataType::float32, root).ok());
      EXPECT_EQ(output, std::vector<float>(8, root == 0 ? 2.0F : 3.0F));
    }
    const auto wrong = [&] {
      return communicator.all_reduce(input.data(), input.data() + 1, 4, DataType::float32);
    };
    for (int again = 0; again < 2; ++again) {
      const Status status = wrong();
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().kind, ErrorKind::misuse);
      call(4, ReduceOperation::sum, 5);
    }
    ASSERT_TRUE(communicator.barrier().ok());
    ASSERT_TRUE(communicator.destroy().ok());
    EXPECT_FALSE(communicator.all_reduce(input.data(), output.data(), 4, DataType::float32).ok());
  });
}

TEST(Collectives, ProgressWithoutAWaiter) {
  run_ranks({.ranks = 2, .nodes = 2}, [&](Communicator& communicator) {
    std::int32_t input = communicator.rank() + 1, output = 0;
    auto work = communicator.submit({.collective = Collective::all_reduce,
                                     .input = &input,
                                     .output = &output,
                                     .count = 1,
                                     .type = DataType::int32});
    ASSERT_TRUE(work.ok()) << work.error().describe();
    for (;;) {
      const Status status = work->status();
      if (status.ok()) break;
      ASSERT_EQ(status.error().kind, ErrorKind::misuse);  // "not complete"
      std::this_thread::yield();
    }
    EXPECT_EQ(output, 3);
  });
}

TEST(Collectives, TheLastHandleWaitsForCallsThatRun) {
  for (int round = 0; round < (test::is_sanitized ? 5 : 20); ++round) {
    std::vector<std::int32_t> outputs(2, 0);
    run_ranks({.ranks = 2}, [&](Communicator& world) {
      // The thread's own handle goes when it ends; nobody has waited by then.
      const std::int32_t mine = world.rank() + 1;
      static thread_local std::int32_t input;
      input = mine;
      auto work = world.submit({.collective = Collective::all_reduce,
                                .input = &input,
                                .output = &outputs[static_cast<std::size_t>(world.rank())],
                                .count = 1,
                                .type = DataType::int32});
      ASSERT_TRUE(work.ok()) << work.error().describe();
    });
    EXPECT_EQ(outputs, (std::vector<std::int32_t>{3, 3}));
  }
}

}  // namespace
}  // namespace unisono
