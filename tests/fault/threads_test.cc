// What goes wrong between ranks is told, with names, and nothing hangs.

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <latch>
#include <thread>

#include "base/settings.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using namespace std::chrono_literals;
using test::run_ranks;

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(Timeout, NamesTheRanksThatHaveNotJoined) {
  std::latch failed(3);
  std::barrier three(3);  // they begin the call together
  std::atomic<int> said_all{0};
  run_ranks({.ranks = 4}, [&](Communicator& world) {
    ASSERT_TRUE(world.barrier().ok());
    if (world.rank() == 2) {
      failed.wait();
      return;
    }
    CallOptions options;
    options.timeout = 1s;
    std::int32_t value = 1;
    three.arrive_and_wait();
    const Status status =
        world.all_reduce(&value, &value, 1, DataType::int32, ReduceOperation::sum, options);
    failed.count_down();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().peer, 2) << status.error().describe();
    EXPECT_TRUE(status.error().timed_out) << status.error().describe();
    said_all += contains(status.error().message, "Ranks that have not joined this call: 2");
    // The failure is final.
    EXPECT_FALSE(world.barrier().ok());
  });
  EXPECT_EQ(said_all.load(), 3);
}

// Messages between some ranks make these count their calls otherwise than the rest.
TEST(Timeout, NamesNobodyWhoHasJoinedAfterFewerMessages) {
  std::latch failed(2);
  std::barrier all(3);  // their messages are over before a deadline begins
  run_ranks({.ranks = 3}, [&](Communicator& world) {
    ASSERT_TRUE(world.barrier().ok());
    std::int32_t value = 1;
    for (int i = 0; i < 3; ++i) {
      if (world.rank() == 0) {
        ASSERT_TRUE(world.send(&value, 1, DataType::int32, 1).ok());
      } else if (world.rank() == 1) {
        ASSERT_TRUE(world.recv(&value, 1, DataType::int32, 0).ok());
      }
    }
    all.arrive_and_wait();
    if (world.rank() == 1) {
      failed.wait();
      return;
    }
    CallOptions options;
    options.timeout = 1s;
    const Status status =
        world.all_reduce(&value, &value, 1, DataType::int32, ReduceOperation::sum, options);
    failed.count_down();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().peer, 1) << status.error().describe();
    EXPECT_TRUE(status.error().message.ends_with("Ranks that have not joined this call: 1"))
        << status.error().describe();
  });
}

TEST(Timeout, BetweenNodesNamesTheAwaitedPeer) {
  std::latch failed(1);
  std::barrier all_joined(2);  // rank 1 answers from then on
  run_ranks({.ranks = 2, .nodes = 2, .timeout = 300ms}, [&](Communicator& world) {
    all_joined.arrive_and_wait();
    if (world.rank() == 1) {
      failed.wait();
      return;
    }
    std::int32_t value = 1;
    const Status status = world.all_reduce(&value, &value, 1, DataType::int32);
    failed.count_down();
    ASSERT_FALSE(status.ok());
    EXPECT_TRUE(status.error().timed_out) << status.error().describe();
    EXPECT_EQ(status.error().peer, 1) << status.error().describe();
    EXPECT_TRUE(contains(status.error().message, "answers, but is not in a call"))
        << status.error().describe();
  });
}

TEST(Timeout, OfOneCallLeavesNoHang) {
  run_ranks({.ranks = 2}, [&](Communicator& world) {
    if (world.rank() == 1) return;
    CallOptions options;
    options.timeout = 100ms;
    const Status status = world.barrier(options);
    ASSERT_FALSE(status.ok());
  });
}

TEST(Abort, EndsACallThatRunsAndTellsThePeers) {
  for (const char* transport : {"shm", "socket"}) {
    std::barrier all_joined(3);  // nobody is still joining when the abort comes
    run_ranks({.ranks = 3, .transport = transport}, [&](Communicator& world) {
      all_joined.arrive_and_wait();
      if (world.rank() == 0) {
        // The others are inside the call, or soon are.
        std::thread aborter([&] { world.abort(); });
        std::int32_t value = 1;
        const Status status = world.all_reduce(&value, &value, 1, DataType::int32);
        aborter.join();
        // It may have been complete before; the next call is not.
        EXPECT_FALSE(world.barrier().ok());
        EXPECT_TRUE(status.ok() || status.error().aborted) << status.error().describe();
        return;
      }
      Status status;
      for (int i = 0; i < 1000 && status.ok(); ++i) {
        std::int32_t value = 1;
        status = world.all_reduce(&value, &value, 1, DataType::int32);
      }
      ASSERT_FALSE(status.ok());
      EXPECT_TRUE(status.error().aborted) << status.error().describe();
      EXPECT_EQ(status.error().peer, 0) << status.error().describe();
    });
  }
}

// Each rank on a node of its own, where no shared memory tells, and no connection for data made.
TEST(Abort, ReachesOtherNodesBeforeAnyConnection) {
  for (const int ranks : {2, 7}) {
    std::barrier all_joined(ranks);
    std::barrier all_done(ranks);  // that rank 0 is gone is not what tells
    run_ranks({.ranks = ranks, .nodes = ranks}, [&](Communicator& world) {
      all_joined.arrive_and_wait();
      if (world.rank() == 0) {
        world.abort();
      } else {
        std::int32_t value = 1;
        const Status status = world.all_reduce(&value, &value, 1, DataType::int32);
        EXPECT_FALSE(status.ok());
        EXPECT_TRUE(status.ok() || status.error().aborted) << status.error().describe();
        EXPECT_TRUE(status.ok() || status.error().peer == 0) << status.error().describe();
      }
      all_done.arrive_and_wait();
    });
  }
}

// The ranks of a split have other numbers than in the job.
TEST(Abort, NamesTheRankOfTheCommunicatorOnOtherNodes) {
  std::barrier all_joined(4);
  std::barrier all_done(4);
  run_ranks({.ranks = 4, .nodes = 4}, [&](Communicator& world) {
    auto odd = world.split(world.rank() % 2, -world.rank());
    ASSERT_TRUE(odd.ok()) << odd.error().describe();
    all_joined.arrive_and_wait();
    if (world.rank() == 3) {
      odd->abort();  // there it is rank 0
    } else if (world.rank() == 1) {
      const Status status = odd->barrier();
      EXPECT_FALSE(status.ok());
      EXPECT_TRUE(status.ok() || status.error().aborted) << status.error().describe();
      EXPECT_TRUE(status.ok() || status.error().peer == 0) << status.error().describe();
    } else {
      EXPECT_TRUE(odd->barrier().ok());
    }
    all_done.arrive_and_wait();
    std::int32_t value = 1;
    EXPECT_TRUE(world.all_reduce(&value, &value, 1, DataType::int32).ok());
  });
}

TEST(Abort, ReachesAWaiterOnTheSameRank) {
  run_ranks({.ranks = 2}, [&](Communicator& world) {
    if (world.rank() == 1) return;
    std::thread waiter([&] {
      std::uint8_t byte = 0;
      const Status status = world.recv(&byte, 1, DataType::uint8, 1);
      EXPECT_FALSE(status.ok());
    });
    world.abort();
    waiter.join();
  });
}

TEST(ARankThatLeaves, IsNamedByThoseWhoWaitForIt) {
  for (const char* transport : {"shm", "socket"})
    run_ranks({.ranks = 3, .transport = transport}, [&](Communicator& world) {
      ASSERT_TRUE(world.barrier().ok());
      if (world.rank() == 1) {
        ASSERT_TRUE(world.destroy().ok());
        return;
      }
      Status status;
      for (int i = 0; i < 10 && status.ok(); ++i) status = world.barrier();
      ASSERT_FALSE(status.ok());
      EXPECT_FALSE(status.error().timed_out) << status.error().describe();
      EXPECT_EQ(status.error().peer, 1) << status.error().describe();
    });
}

TEST(ARankThatLeaves, IsNamedWhereNoConnectionToItWasMade) {
  for (const int nodes : {1, 2}) {
    std::barrier all_joined(2);
    run_ranks({.ranks = 2, .nodes = nodes}, [&](Communicator& world) {
      all_joined.arrive_and_wait();
      if (world.rank() == 1) return;
      std::uint8_t byte = 0;
      const Status status = world.recv(&byte, 1, DataType::uint8, 1);
      ASSERT_FALSE(status.ok());
      EXPECT_FALSE(status.error().timed_out) << status.error().describe();
      EXPECT_EQ(status.error().peer, 1) << status.error().describe();
    });
  }
}

const SettingValues checks_calls{{"UNISONO_CHECK_CALLS", "1"}};

TEST(CheckedCalls, NameTheRankWhoseCountDiffersAndGoOn) {
  run_ranks({.ranks = 3, .settings = checks_calls}, [&](Communicator& world) {
    std::vector<float> data(20);
    const Status status =
        world.all_reduce(data.data(), data.data(), world.rank() == 2 ? 11 : 10, DataType::float32);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().kind, ErrorKind::misuse);
    EXPECT_TRUE(contains(status.error().message,
                         "all_reduce of 10 float32, sum; rank 2 calls "
                         "all_reduce of 11 float32"))
        << status.error().message;
    EXPECT_TRUE(world.barrier().ok());
  });
}

TEST(CheckedCalls, NameDifferingTypesOperationsRootsAndCollectives) {
  run_ranks({.ranks = 2, .settings = checks_calls}, [&](Communicator& world) {
    const bool odd = world.rank() == 1;
    std::vector<double> data(8);
    const auto expect_told = [&](const Status& status) {
      ASSERT_FALSE(status.ok());
      EXPECT_TRUE(contains(status.error().message, "ranks disagree")) << status.error().message;
    };
    expect_told(
        world.all_reduce(data.data(), data.data(), 4, odd ? DataType::float64 : DataType::float32));
    expect_told(world.all_reduce(data.data(), data.data(), 4, DataType::float32,
                                 odd ? ReduceOperation::max : ReduceOperation::sum));
    expect_told(world.broadcast(data.data(), data.data(), 4, DataType::float32, odd ? 1 : 0));
    expect_told(odd ? world.barrier()
                    : world.all_reduce(data.data(), data.data(), 4, DataType::float32));
    EXPECT_TRUE(world.barrier().ok());
  });
}

// Whatever is wrong on one rank, the others do not wait for it.
TEST(CheckedCalls, TellAllOfOneRanksMisuseAndGoOn) {
  run_ranks({.ranks = 3, .settings = checks_calls}, [&](Communicator& world) {
    std::vector<float> data(64);
    const bool odd = world.rank() == 2;
    const auto expect_told = [&](const Status& status, std::string_view why) {
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().kind, ErrorKind::misuse);
      EXPECT_TRUE(contains(status.error().message, why)) << status.error().message;
      if (!odd) {
        EXPECT_TRUE(contains(status.error().message, "rank 2 cannot make"))
            << status.error().message;
      }
      std::int32_t one = 1;
      ASSERT_TRUE(world.all_reduce(&one, &one, 1, DataType::int32).ok());
      EXPECT_EQ(one, 3);
    };
    expect_told(world.broadcast(data.data(), data.data(), 4, DataType::float32, odd ? 9 : 0),
                "root is 9");
    expect_told(world.all_reduce(data.data(), data.data(), odd ? -1 : 4, DataType::float32),
                "count is -1");
    expect_told(world.all_reduce(odd ? nullptr : data.data(), data.data(), 4, DataType::float32),
                "null pointer");
    expect_told(world.all_reduce(data.data() + (odd ? 1 : 0), data.data(), 4, DataType::float32),
                "overlap");
    CallOptions options;
    if (odd) options.algorithm = "rnig";
    expect_told(world.all_reduce(data.data(), data.data(), 4, DataType::float32,
                                 ReduceOperation::sum, options),
                "rnig");
    auto work = world.submit(Call{.collective = Collective::all_reduce,
                                  .input = data.data(),
                                  .output = data.data(),
                                  .count = odd ? -7 : 4,
                                  .send_counts = {},
                                  .send_displacements = {},
                                  .recv_counts = {},
                                  .recv_displacements = {},
                                  .options = {}});
    ASSERT_FALSE(work.ok());
    expect_told(work.error(), "count is -7");
    // What a caller above this API has found.
    expect_told(odd ? world.refuse_call("x is no array")
                    : world.all_reduce(data.data(), data.data(), 4, DataType::float32),
                "x is no array");
  });
}

TEST(Messages, AreComparedByTheirTwoRanks) {
  for (const std::string_view transport : {"shm", "socket"})
    for (const bool in_group : {false, true})
      for (const bool differs : {false, true})
        run_ranks({.ranks = 2, .transport = std::string(transport)}, [&](Communicator& world) {
          std::vector<float> data(100'000);
          // Half the elements of twice the size, and the same bytes.
          const std::int64_t count = differs ? 50'000 : 100'000;
          const auto type = differs ? DataType::int64 : DataType::float32;
          Message message{.is_send = world.rank() == 0, .count = 100'000, .peer = 1 - world.rank()};
          message.type = DataType::float32;
          message.send_data = message.recv_data = data.data();
          if (world.rank() == 1) {
            message.count = count;
            message.type = type;
          }
          message.tag = in_group ? 5 : 0;
          Status status;
          if (in_group) {
            auto work = world.submit(std::span(&message, 1));
            ASSERT_TRUE(work.ok());
            status = work->wait();
          } else if (message.is_send) {
            status = world.send(data.data(), message.count, message.type, 1);
          } else {
            status = world.recv(data.data(), message.count, message.type, 0);
          }
          if (!differs) {
            EXPECT_TRUE(status.ok()) << status.error().describe();
          }
          // What is sent may be gone before it is received.
          if (!differs || message.is_send) return;
          ASSERT_FALSE(status.ok());
          EXPECT_EQ(status.error().kind, ErrorKind::peer);
          EXPECT_TRUE(contains(status.error().message,
                               "rank 1 calls a message of 50000 int64; rank 0 calls a message of "
                               "100000 float32"))
              << status.error().message;
        });
}

TEST(Misuse, IsToldWithTheValueAndTheRank) {
  run_ranks({.ranks = 2}, [&](Communicator& world) {
    std::vector<float> data(64);
    const auto told = [&](const Status& status, std::string_view part) {
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().kind, ErrorKind::misuse);
      EXPECT_TRUE(contains(status.error().message, part)) << status.error().message;
    };
    told(world.broadcast(data.data(), data.data(), 4, DataType::float32, 2), "root is 2");
    told(world.all_reduce(data.data(), data.data(), -1, DataType::float32), "count is -1");
    told(world.all_reduce(nullptr, data.data(), 4, DataType::float32), "null pointer");
    told(world.all_reduce(data.data(), data.data() + 1, 4, DataType::float32), "overlap");
    CallOptions options;
    options.algorithm = "rnig";
    told(world.all_reduce(data.data(), data.data(), 4, DataType::float32, ReduceOperation::sum,
                          options),
         "ring");
    options.algorithm = "bruck";
    told(world.all_reduce(data.data(), data.data(), 4, DataType::float32, ReduceOperation::sum,
                          options),
         "bruck");
    EXPECT_TRUE(world.barrier().ok());
    EXPECT_FALSE(Communicator().barrier().ok());
  });
}

}  // namespace
}  // namespace unisono
