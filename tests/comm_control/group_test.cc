// Groups over real sockets: many at once, from many threads, and what ends them.

#include <gtest/gtest.h>

#include <atomic>
#include <latch>

#include "base/error.h"
#include "base/fingerprint.h"
#include "comm/blame/kept_calls.h"
#include "support/real_ranks.h"

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
      auto made = world.subgroup(id, members);
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

TEST(ControlGroup, AMemberThatDoesNotComeIsNamedByAll) {
  constexpr int p = 8;
  constexpr int absent = 5;
  auto results = bootstrap_all(p);
  std::atomic<int> named{0};
  run_ranks(p, [&](int rank) {
    if (rank == absent) return;
    ControlGroup& world = *results[static_cast<std::size_t>(rank)]->world;
    const Status status = world.barrier(2 * second_ns);
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

// `peer` is a member of the group that gives up; the job numbers it otherwise.
Error abort_by(int member) {
  Error error = aborted_error("the test says so");
  error.peer = member;
  return error;
}

TEST(ControlGroup, AnAbortFromAnotherThreadEndsTheCallsOfAllMembers) {
  constexpr int p = 4;
  auto results = bootstrap_all(p);
  run_ranks(p, [&](int rank) {
    ControlGroup& world = *results[static_cast<std::size_t>(rank)]->world;
    std::thread aborter;
    if (rank == 3) aborter = std::thread([&] { world.give_up(abort_by(3)); });
    // Rank 2 never comes, so that nobody gets through before the abort.
    const Status status = rank == 2 ? Status() : world.barrier(3600 * second_ns);
    if (aborter.joinable()) aborter.join();
    if (rank == 2) return;
    ASSERT_FALSE(status.ok());
    EXPECT_TRUE(status.error().aborted) << status.error().describe();
    EXPECT_EQ(status.error().peer, 3);
    EXPECT_NE(status.error().message.find("the test says so"), std::string::npos);
  });
}

// Nobody is inside a call: who only looks now and then hears of it all the same, by its own
// numbering of the members.
TEST(ControlGroup, AnAbortIsHeardByWhoLooks) {
  auto results = bootstrap_all(3);
  std::latch left_the_barrier(3);
  run_ranks(3, [&](int rank) {
    ControlGroup& world = *results[static_cast<std::size_t>(rank)]->world;
    auto made = world.subgroup(4711, std::vector<int>{2, 0, 1});
    const bool met = made.ok() && (*made)->barrier(30 * second_ns).ok();
    left_the_barrier.arrive_and_wait();
    ASSERT_TRUE(met);
    ControlGroup& group = **made;
    EXPECT_FALSE(group.look().has_value() && rank == 2);
    if (rank == 2) {
      group.give_up(abort_by(0));
      return;
    }
    std::optional<Error> told;
    while (!told) told = group.look();
    EXPECT_TRUE(told->aborted) << told->describe();
    EXPECT_EQ(told->peer, 0) << told->describe();
    EXPECT_FALSE(world.look().has_value());
  });
}

TEST(ControlGroup, AMemberThatEndsIsSeenByWhoWatchesIt) {
  constexpr int p = 8;
  constexpr int gone = 5;  // rank 0 has no link to it from the bootstrap
  auto results = bootstrap_all(p);
  run_ranks(p, [&](int rank) {
    auto& result = results[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(result->world->barrier(30 * second_ns).ok());
    if (rank == gone) {
      result->world.reset();
      return;
    }
    if (rank != 0) return;
    std::optional<Error> wrong;
    while (!wrong) {
      ASSERT_FALSE(result->world->look().has_value());
      wrong = result->world->watch(gone);
    }
    EXPECT_EQ(wrong->peer, gone) << wrong->describe();
    EXPECT_FALSE(wrong->timed_out);
    EXPECT_FALSE(result->world->watch(1).has_value());
  });
}

// By the members' numbers in their group; also of a member that is in no call any more.
TEST(ControlGroup, AMemberTellsWhichCallsItMade) {
  constexpr int p = 8;
  constexpr int asked = 5;  // member 0 has no link to it from the bootstrap
  const CallId first{.what = unisono::pack({.collective = Collective::all_gather, .count = 4}),
                     .number = 0,
                     .plan = plan_id("ring", 0, Protocol::simple, 1)};
  const CallId second{.what = unisono::pack({.collective = Collective::barrier}),
                      .number = 1,
                      .plan = plan_id("star", 0, Protocol::simple, 1)};
  auto results = bootstrap_all(p);
  std::latch has_compared(1);
  run_ranks(p, [&](int rank) {
    ControlGroup& world = *results[static_cast<std::size_t>(rank)]->world;
    std::vector<int> reversed(p);
    for (int member = 0; member < p; ++member)
      reversed[static_cast<std::size_t>(member)] = p - 1 - member;
    auto made = world.subgroup(4711, reversed);
    ASSERT_TRUE(made.ok());
    ControlGroup& group = **made;
    const auto kept = std::make_shared<KeptCalls>();
    if (group.rank() == asked) {
      kept->show(first);
      kept->show(second);
    }
    group.show_calls(kept);
    EXPECT_TRUE(group.barrier(30 * second_ns).ok());
    if (group.rank() != 0) {
      while (!has_compared.try_wait()) EXPECT_FALSE(group.look());
      return;
    }
    CallId mine = second;
    mine.plan = plan_id("ring", 0, Protocol::ll, 2);
    std::optional<Error> wrong;
    while (!wrong) {
      ASSERT_FALSE(group.look().has_value());
      wrong = group.compare(asked, 1, mine);
    }
    EXPECT_EQ(wrong->reason, FailureReason::mismatch);
    EXPECT_EQ(wrong->peer, -1);
    EXPECT_EQ(wrong->message,
              "ranks disagree on call 1 of communicator 4711: rank 0 calls barrier, by plan ring, "
              "ll, 2 channels; rank 5 calls barrier, by plan star, simple, 1 channel");
    // What is known of one number says nothing of another one.
    EXPECT_FALSE(group.compare(asked, 0, mine));
    EXPECT_FALSE(group.compare(asked, 1, second)) << "it is the same";
    EXPECT_TRUE(group.compare(p, 1, mine)) << "there is no such member";
    has_compared.count_down();
  });
}

TEST(ControlGroup, AnAbortOfOneGroupLeavesTheOthersAlone) {
  auto results = bootstrap_all(3);
  run_ranks(3, [&](int rank) {
    ControlGroup& world = *results[static_cast<std::size_t>(rank)]->world;
    const std::vector<int> everyone{2, 0, 1};
    auto group = world.subgroup(4711, everyone);
    ASSERT_TRUE(group.ok());
    EXPECT_EQ((*group)->rank(), (rank + 1) % 3);
    EXPECT_TRUE((*group)->barrier(30 * second_ns).ok());
    EXPECT_TRUE(world.barrier(30 * second_ns).ok());
    (*group)->give_up(abort_by((*group)->rank()));
    EXPECT_FALSE((*group)->barrier(30 * second_ns).ok());
    EXPECT_TRUE(world.barrier(30 * second_ns).ok());
  });
}

TEST(ControlGroup, ANewEpochRefusesWhatIsLeftOfTheOld) {
  auto results = bootstrap_all(2);
  run_ranks(2, [&](int rank) {
    ControlGroup& world = *results[static_cast<std::size_t>(rank)]->world;
    const std::vector<int> both{0, 1};
    auto old = world.subgroup(99, both);
    if (rank == 0) {
      // Sent, and at the peer before what follows on the same link.
      EXPECT_FALSE((*old)->all_gather(contribution_of(1), second_ns / 10).ok());
    }
    auto renewed = (*old)->subgroup(99, both);
    const auto gathered = (*renewed)->all_gather(contribution_of(2 + rank), 30 * second_ns);
    ASSERT_TRUE(gathered.ok()) << gathered.error().describe();
    EXPECT_TRUE(is_contribution_of(3 - rank, (*gathered)[1 - rank]));
    if (rank == 1) {
      EXPECT_FALSE((*old)->barrier(second_ns / 10).ok());
    }
    EXPECT_TRUE(world.barrier(30 * second_ns).ok());
  });
}

// Also the epoch in which the job was assembled.
TEST(ControlGroup, AnEpochIsOverOnceItsLastGroupIsLeft) {
  auto results = bootstrap_all(2);
  run_ranks(2, [&](int rank) {
    std::unique_ptr<ControlGroup>& world = results[static_cast<std::size_t>(rank)]->world;
    const auto epochs = world->open_epochs();
    auto next = world->subgroup(99, std::vector<int>{0, 1});
    ASSERT_TRUE(next.ok()) << next.error().describe();
    EXPECT_FALSE(epochs->is_over(0));
    world.reset();
    // The barrier runs on the loop, after what the last owner of the old group left to be done.
    EXPECT_TRUE((*next)->barrier(60 * second_ns).ok());
    EXPECT_TRUE(epochs->is_over(0));
    EXPECT_FALSE(epochs->is_over(1));
  });
}

TEST(ControlGroup, BadMembersAreRefused) {
  auto results = bootstrap_all(2);
  ControlGroup& world = *results[0]->world;
  const auto refusal = [&world](std::vector<int> members) {
    auto made = world.subgroup(1, members);
    return made.ok() ? std::string("none") : made.error().message;
  };
  EXPECT_EQ(refusal({0, 2}), "member 2 of the new group is not in this group; members are 0 to 1");
  EXPECT_EQ(refusal({-1, 0}),
            "member -1 of the new group is not in this group; members are 0 to 1");
  EXPECT_EQ(refusal({0, 0}), "member 0 is named twice for the new group");
  EXPECT_EQ(refusal({1}),
            "rank 0 is not a member of the new group; only its members may create it");
  const auto gathered = world.all_gather(std::vector<std::byte>(max_exchange_bytes + 1), second_ns);
  ASSERT_FALSE(gathered.ok());
  EXPECT_EQ(gathered.error().kind, ErrorKind::misuse) << gathered.error().describe();
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
