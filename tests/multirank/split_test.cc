// Communicators made from communicators.

#include <gtest/gtest.h>

#include <thread>

#include "support/ranks.h"

namespace unisono {
namespace {

using test::run_ranks;

std::int64_t sum_of_ranks(Communicator& communicator, std::int64_t mine) {
  std::int64_t result = -1;
  const Status status = communicator.all_reduce(&mine, &result, 1, DataType::int64);
  EXPECT_TRUE(status.ok()) << status.error().describe();
  return result;
}

TEST(Split, RowsAndColumnsOverlapAndWorkTogether) {
  run_ranks({.ranks = 6, .nodes = 2}, [](Communicator& world) {
    const int rank = world.rank();
    auto row = world.split(rank / 3, rank);
    auto column = world.split(rank % 3, -rank);
    ASSERT_TRUE(row.ok() && column.ok());
    ASSERT_EQ(row->size(), 3);
    ASSERT_EQ(column->size(), 2);
    EXPECT_EQ(row->rank(), rank % 3);
    EXPECT_EQ(column->rank(), rank < 3 ? 1 : 0);  // ordered by the negative key
    const std::int64_t in_row = sum_of_ranks(*row, rank), in_column = sum_of_ranks(*column, rank);
    EXPECT_EQ(in_row, rank < 3 ? 0 + 1 + 2 : 3 + 4 + 5);
    EXPECT_EQ(in_column, 2 * (rank % 3) + 3);
    EXPECT_EQ(sum_of_ranks(world, rank), 15);
    EXPECT_NE(row->id(), column->id());
    EXPECT_NE(row->id(), world.id());
    EXPECT_EQ(row->world_ranks()[0], rank < 3 ? 0 : 3);
  });
}

TEST(Split, ManyAreUsedAtOnceByManyThreads) {
  constexpr int groups = 6;
  run_ranks({.ranks = 4}, [](Communicator& world) {
    std::vector<Communicator> communicators;
    for (int i = 0; i < groups; ++i) {
      auto made = world.split(i % 2 == 0 ? 0 : world.rank() % 2, world.rank());
      ASSERT_TRUE(made.ok()) << made.error().describe();
      communicators.push_back(*made);
    }
    std::vector<std::thread> threads;
    for (int i = 0; i < groups; ++i)
      threads.emplace_back([&, i] {
        Communicator& communicator = communicators[static_cast<std::size_t>(i)];
        for (int round = 0; round < 50; ++round) {
          const std::int64_t expected =
              communicator.size() == 4 ? 6 : (world.rank() % 2 == 0 ? 2 : 4);
          ASSERT_EQ(sum_of_ranks(communicator, world.rank()), expected) << "group " << i;
        }
      });
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(Split, ANegativeColorJoinsNone) {
  run_ranks({.ranks = 3}, [](Communicator& world) {
    auto made = world.split(world.rank() == 0 ? -1 : 5, 0);
    ASSERT_TRUE(made.ok());
    EXPECT_EQ(made->valid(), world.rank() != 0);
    if (!made->valid()) return;
    EXPECT_EQ(sum_of_ranks(*made, world.rank()), 3);
  });
}

TEST(Split, OfASplitAndAfterItsParentIsGone) {
  run_ranks({.ranks = 4}, [](Communicator& world) {
    auto half = world.split(world.rank() / 2, 0);
    ASSERT_TRUE(half.ok());
    auto alone = half->split(half->rank(), 0);
    ASSERT_TRUE(alone.ok());
    EXPECT_EQ(sum_of_ranks(*alone, 7), 7);
    ASSERT_TRUE(world.destroy().ok());
    EXPECT_EQ(sum_of_ranks(*half, 1), 2);
    EXPECT_FALSE(world.barrier().ok());
  });
}

TEST(Memory, ConnectionsAppearOnFirstUseAndGoWithDestroy) {
  run_ranks({.ranks = 3}, [](Communicator& world) {
    EXPECT_TRUE(world.memory().connections.empty());
    sum_of_ranks(world, 1);
    const MemoryReport after = world.memory();
    EXPECT_FALSE(after.connections.empty());
    EXPECT_GT(after.total_bytes, after.record_bytes);
    EXPECT_LT(after.total_bytes, std::size_t{16} << 20);
    ASSERT_TRUE(world.barrier().ok());
    ASSERT_TRUE(world.destroy().ok());
    EXPECT_TRUE(world.memory().connections.empty());
  });
}

TEST(Record, TellsWhatCallsDid) {
  run_ranks({.ranks = 2}, [](Communicator& world) {
    sum_of_ranks(world, 1);
    const std::string record = world.dump_record();
    EXPECT_NE(record.find("\"format\": \"unisono-record\""), std::string::npos) << record;
    EXPECT_NE(record.find("\"collective\": \"all_reduce\""), std::string::npos) << record;
    EXPECT_NE(record.find("\"state\": \"ended\""), std::string::npos) << record;
  });
}

TEST(Explain, SaysWhichPlanAndWhy) {
  run_ranks({.ranks = 4, .nodes = 2}, [](Communicator& world) {
    auto text = world.explain(Collective::all_reduce, 1 << 20);
    ASSERT_TRUE(text.ok());
    EXPECT_NE(text->text().find("cost model"), std::string::npos) << text->text();
    EXPECT_NE(text->text().find("ring"), std::string::npos) << text->text();
  });
}

TEST(Shrink, ThoseWhoStayGoOnWithoutTheOthers) {
  run_ranks({.ranks = 4, .nodes = 2}, [](Communicator& world) {
    if (world.rank() == 2) return;
    const std::vector<int> excluded{2};
    for (int round = 0; round < 2; ++round) {
      auto smaller = world.shrink(excluded);
      ASSERT_TRUE(smaller.ok()) << smaller.error().describe();
      EXPECT_EQ(smaller->size(), 3);
      EXPECT_EQ(smaller->world_ranks(), (std::vector<int>{0, 1, 3}));
      EXPECT_EQ(sum_of_ranks(*smaller, 1 << world.rank()), 0b1011);
    }
  });
}

TEST(Shrink, OfACommunicatorThatWasAborted) {
  run_ranks({.ranks = 3}, [](Communicator& world) {
    // All are out of init when one leaves this; an abort may overtake the others in it.
    static_cast<void>(world.barrier());
    if (world.rank() == 0) return;
    world.abort();
    const std::vector<int> excluded{0};
    auto smaller = world.shrink(excluded);
    ASSERT_TRUE(smaller.ok()) << smaller.error().describe();
    EXPECT_EQ(sum_of_ranks(*smaller, 5), 10);
    EXPECT_FALSE(world.failure().ok());
  });
}

TEST(Shrink, WhoIsLeftOutDoesNotCallIt) {
  run_ranks({.ranks = 2}, [](Communicator& world) {
    auto self = world.shrink(std::vector<int>{world.rank()});
    ASSERT_FALSE(self.ok());
    EXPECT_NE(self.error().message.find("makes the call itself"), std::string::npos);
    auto nobody = world.shrink(std::vector<int>{2});
    ASSERT_FALSE(nobody.ok());
    EXPECT_NE(nobody.error().message.find("ranks are 0 to 1"), std::string::npos);
    EXPECT_EQ(sum_of_ranks(world, 1), 2);
  });
}

}  // namespace
}  // namespace unisono
