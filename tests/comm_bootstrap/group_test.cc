// Groups over real sockets: many at once, from many threads, and what ends them.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

#include "base/wire.h"
#include "real_ranks.h"

namespace unisono::comm {
namespace {

std::vector<int> members_of_color(int p, int color, int colors) {
  std::vector<int> out;
  for (int rank = color; rank < p; rank += colors) out.push_back(rank);
  return out;
}

// Each rank is in two overlapping groups and uses them and the world group from three threads.
TEST(ControlGroup, OverlappingGroupsAreUsedAtOnceFromManyThreads) {
  constexpr int p = 6;
  auto results = bootstrap_all(p);
  run_ranks(p, [&](int rank) {
    ASSERT_TRUE(results[static_cast<std::size_t>(rank)].ok());
    ControlGroup& world = *results[static_cast<std::size_t>(rank)]->world;
    std::vector<std::unique_ptr<ControlGroup>> groups;
    for (const int colors : {2, 3}) {
      const auto members = members_of_color(p, rank % colors, colors);
      const auto id = child_communicator(world.communicator(), static_cast<std::uint64_t>(colors),
                                         rank % colors);
      auto made = world.subgroup(id, 0, members);
      ASSERT_TRUE(made.ok()) << made.error().describe();
      groups.push_back(std::move(*made));
    }
    const auto use = [&](ControlGroup& group) {
      for (int round = 0; round < 30; ++round) {
        const auto gathered = group.all_gather(contribution_of(rank + round), 60 * second_ns);
        ASSERT_TRUE(gathered.ok()) << gathered.error().describe();
        for (int member = 0; member < group.size(); ++member) {
          const int other = group.world_ranks()[static_cast<std::size_t>(member)];
          EXPECT_TRUE(is_contribution_of(other + round, gathered.value()[member]));
        }
      }
    };
    std::thread first([&] { use(*groups[0]); });
    std::thread second([&] { use(*groups[1]); });
    use(world);
    first.join();
    second.join();
  });
}

TEST(ControlGroup, MessagesOfOneTagArriveInOrder) {
  auto results = bootstrap_all(2);
  run_ranks(2, [&](int rank) {
    ControlGroup& world = *results[static_cast<std::size_t>(rank)]->world;
    constexpr int count = 200;
    if (rank == 0)
      for (int i = 0; i < count; ++i) {
        const Status sent =
            world.send(1, static_cast<std::uint64_t>(i % 2), contribution_of(i), 30 * second_ns);
        ASSERT_TRUE(sent.ok()) << sent.error().describe();
      }
    else
      for (const int tag : {1, 0})
        for (int i = tag; i < count; i += 2) {
          const auto received = world.receive(0, static_cast<std::uint64_t>(tag), 30 * second_ns);
          ASSERT_TRUE(received.ok()) << received.error().describe();
          EXPECT_TRUE(is_contribution_of(i, *received)) << i;
        }
  });
}

TEST(ControlGroup, ATransportGetsAFreshConnectedSocket) {
  auto results = bootstrap_all(3);
  run_ranks(3, [&](int rank) {
    ControlGroup& world = *results[static_cast<std::size_t>(rank)]->world;
    const auto out = world.connect_socket((rank + 1) % 3, 77, 30 * second_ns);
    const auto in = world.accept_socket((rank + 2) % 3, 77, 30 * second_ns);
    ASSERT_TRUE(out.ok()) << out.error().describe();
    ASSERT_TRUE(in.ok()) << in.error().describe();
    const char mine = static_cast<char>('a' + rank);
    char theirs = 0;
    EXPECT_EQ(send(*out, &mine, 1, MSG_NOSIGNAL), 1);
    // The peer sends after its own calls, in which this rank serves it.
    ASSERT_TRUE(world.barrier(30 * second_ns).ok());
    EXPECT_EQ(recv(*in, &theirs, 1, MSG_DONTWAIT), 1);
    EXPECT_EQ(theirs, static_cast<char>('a' + (rank + 2) % 3));
    close(*out);
    close(*in);
  });
}

TEST(ControlGroup, AMemberThatDoesNotComeIsNamedByAll) {
  constexpr int p = 8;
  constexpr int absent = 5;
  auto results = bootstrap_all(p);
  std::atomic<int> named{0};
  run_ranks(p, [&](int rank) {
    if (rank == absent) return;
    ControlGroup& world = *results[static_cast<std::size_t>(rank)]->world;
    const Status status = world.barrier(second_ns);
    ASSERT_FALSE(status.ok());
    EXPECT_TRUE(status.error().timed_out) << status.error().describe();
    EXPECT_EQ(status.error().peer, absent) << "rank " << rank << status.error().describe();
    named += status.error().peer == absent;
  });
  EXPECT_EQ(named, p - 1);
}

TEST(ControlGroup, AMemberThatEndsIsNamedAtOnceByAll) {
  constexpr int p = 7;
  constexpr int gone = 4;
  auto results = bootstrap_all(p);
  run_ranks(p, [&](int rank) {
    auto& result = results[static_cast<std::size_t>(rank)];
    if (rank == gone) {
      result->world.reset();
      return;
    }
    // The timeout is longer than any test may take, so it is the death that ends the wait.
    const Status status = result->world->barrier(3600 * second_ns);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().peer, gone) << "rank " << rank << status.error().describe();
  });
}

TEST(ControlGroup, AnAbortFromAnotherThreadEndsTheCallsOfAllMembers) {
  constexpr int p = 4;
  auto results = bootstrap_all(p);
  run_ranks(p, [&](int rank) {
    ControlGroup& world = *results[static_cast<std::size_t>(rank)]->world;
    if (rank == 3) {
      std::thread aborter([&] { world.abort("the test says so"); });
      const auto received = world.receive(2, 1, 3600 * second_ns);
      ASSERT_FALSE(received.ok());
      EXPECT_TRUE(received.error().aborted);
      aborter.join();
    }
    const Status status = world.barrier(3600 * second_ns);
    ASSERT_FALSE(status.ok());
    EXPECT_TRUE(status.error().aborted) << status.error().describe();
    EXPECT_NE(status.error().message.find("the test says so"), std::string::npos);
  });
}

TEST(ControlGroup, AnAbortOfOneGroupLeavesTheOthersAlone) {
  auto results = bootstrap_all(3);
  run_ranks(3, [&](int rank) {
    ControlGroup& world = *results[static_cast<std::size_t>(rank)]->world;
    const std::vector<int> everyone{2, 0, 1};
    auto group = world.subgroup(4711, 1, everyone);
    ASSERT_TRUE(group.ok());
    EXPECT_EQ((*group)->rank(), (rank + 1) % 3);
    EXPECT_TRUE((*group)->barrier(30 * second_ns).ok());
    EXPECT_TRUE(world.barrier(30 * second_ns).ok());
    (*group)->abort("done with it");
    EXPECT_FALSE((*group)->barrier(30 * second_ns).ok());
    EXPECT_TRUE(world.barrier(30 * second_ns).ok());
  });
}

TEST(ControlGroup, ANewEpochRefusesWhatIsLeftOfTheOld) {
  auto results = bootstrap_all(2);
  run_ranks(2, [&](int rank) {
    ControlGroup& world = *results[static_cast<std::size_t>(rank)]->world;
    const std::vector<int> both{0, 1};
    auto old = world.subgroup(99, 0, both);
    auto renewed = world.subgroup(99, 1, both);
    if (rank == 0) {
      EXPECT_TRUE((*old)->send(1, 5, contribution_of(1), 30 * second_ns).ok());
      EXPECT_TRUE((*renewed)->send(1, 5, contribution_of(2), 30 * second_ns).ok());
      EXPECT_TRUE(world.barrier(30 * second_ns).ok());
      return;
    }
    const auto received = (*renewed)->receive(0, 5, 30 * second_ns);
    ASSERT_TRUE(received.ok());
    EXPECT_TRUE(is_contribution_of(2, *received));
    EXPECT_FALSE((*old)->receive(0, 5, second_ns / 10).ok());
    EXPECT_TRUE(world.barrier(30 * second_ns).ok());
  });
}

TEST(ControlGroup, BadMembersAreRefused) {
  auto results = bootstrap_all(2);
  ControlGroup& world = *results[0]->world;
  EXPECT_FALSE(world.subgroup(1, 0, std::vector<int>{0, 2}).ok());
  EXPECT_FALSE(world.subgroup(1, 0, std::vector<int>{0, 0}).ok());
  EXPECT_FALSE(world.subgroup(1, 0, std::vector<int>{1}).ok());
  EXPECT_FALSE(world.send(0, 1, {}, second_ns).ok());
  EXPECT_FALSE(world.receive(7, 1, second_ns).ok());
  EXPECT_FALSE(world.all_gather(std::vector<std::byte>(max_exchange_bytes + 1), second_ns).ok());
}

TEST(ChildCommunicator, DiffersInEveryArgument) {
  const std::uint64_t one = child_communicator(1, 2, 3);
  EXPECT_EQ(one, child_communicator(1, 2, 3));
  EXPECT_NE(one, child_communicator(2, 2, 3));
  EXPECT_NE(one, child_communicator(1, 3, 3));
  EXPECT_NE(one, child_communicator(1, 2, 4));
}

}  // namespace
}  // namespace unisono::comm
