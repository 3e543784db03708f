// Ranks on several nodes of this host: tiles on their way between nodes, and how ranks wait there.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <thread>

#include "base/settings.h"
#include "comm/job/job.h"
#include "comm/run/connections.h"
#include "support/eventually.h"
#include "support/ranks.h"

namespace unisono {
namespace {

TEST(Nodes, ChunksOfSeveralTilesArriveWhole) {
  constexpr int ranks = 4;
  // Of a ring's chunk of 50,001 elements the last tile is a ragged one.
  for (const auto collective : {Collective::all_reduce, Collective::all_gather})
    for (const char* algorithm : {"ring", "hierarchical_ring"})
      test::run_ranks({.ranks = ranks, .nodes = 2}, [&](Communicator& communicator) {
        const std::int64_t count = collective == Collective::all_reduce ? 200'003 : 50'001;
        test::CheckedCall call{
            .problem = {.collective = collective, .ranks = ranks, .count = count}, .seed = 11};
        call.options.algorithm = algorithm;
        call.options.protocol = Protocol::simple;
        EXPECT_EQ(test::run_checked(communicator, call), "") << algorithm;
      });
}

// A rank's connection to the one rank on the other node.
struct End {
  End(const std::string& rendezvous, int self) : world{0, 1} {
    InitOptions options;
    options.rank = self;
    options.world_size = 2;
    options.rendezvous = rendezvous;
    options.node = self == 0 ? "here" : "there";
    auto joined = comm::Job::join(options);
    EXPECT_TRUE(joined.ok()) << joined.error().describe();
    if (!joined.ok()) return;
    connections = std::make_unique<comm::Connections>(*joined, 7, 0, self, world);
    EXPECT_TRUE(test::eventually([&] {
      send = *connections->send_fifo(1 - self, 0, Protocol::simple);
      recv = *connections->recv_fifo(1 - self, 0, Protocol::simple);
      EXPECT_TRUE(connections->progress().ok());
      return send != nullptr && recv != nullptr;
    }));
  }

  void tell(int value) {
    const std::array pieces{transport::Piece{&value, sizeof value}};
    ASSERT_TRUE(*send->can_send());
    ASSERT_TRUE(send->send(pieces).ok());
    while (!*send->flush()) ASSERT_TRUE(connections->progress().ok());
  }
  // Sleeps, and nothing else, until a message is there; returns how often.
  int hear(int expected) {
    int sleeps = 0;
    while (!*recv->arrived(sizeof expected)) {
      connections->sleep(at_most_ns);
      ++sleeps;
      EXPECT_TRUE(connections->progress().ok());
    }
    int value = -1;
    EXPECT_TRUE(recv->copy_to(&value, 0, sizeof value).ok());
    EXPECT_EQ(value, expected);
    EXPECT_TRUE(recv->release().ok());
    return sleeps;
  }

  static constexpr std::int64_t at_most_ns = 5'000'000'000;
  std::vector<int> world;
  std::unique_ptr<comm::Connections> connections;
  transport::SendFifo* send = nullptr;
  transport::RecvFifo* recv = nullptr;
};

TEST(Nodes, AMessageFromAnotherNodeEndsASleepAndNothingElseDoes) {
  constexpr int trips = 20;
  const test::Rendezvous rendezvous;
  int sleeps = 0;
  const auto started = std::chrono::steady_clock::now();
  std::thread other([&] {
    End end(rendezvous.url(), 1);
    for (int trip = 0; trip < trips; ++trip) {
      end.hear(trip);
      end.tell(trip);
    }
  });
  End end(rendezvous.url(), 0);
  EXPECT_TRUE(end.connections->has_events());
  for (int trip = 0; trip < trips; ++trip) {
    end.tell(trip);
    sleeps += end.hear(trip);
  }
  other.join();
  const auto took = std::chrono::steady_clock::now() - started;
  // No sleep lasted to its end, or all would have, and taken more than so much;
  EXPECT_LT(took, std::chrono::nanoseconds(End::at_most_ns) * trips);
  // and what else is an event, such as a stream that can be written again, is rare.
  EXPECT_LE(sleeps, 10 * trips);
}

// Times that this thread has slept.
std::int64_t sleeps() {
  rusage usage{};
  EXPECT_EQ(getrusage(RUSAGE_THREAD, &usage), 0);
  return usage.ru_nvcsw;
}

// Messages through shared memory wake nobody: who slept 20, 40, 80 us and so on would sleep some
// seven times in 2 ms, and be late each time. Rank 1 has a connection to another node, too.
TEST(Nodes, WhoAwaitsItsOwnNodeDoesNotSleep) {
  constexpr int calls = 20;
  for (const Protocol protocol : {Protocol::simple, Protocol::ll})
    test::run_ranks(
        {.ranks = 3, .nodes = 2, .settings = {{"UNISONO_SPIN", "4000"}}},
        [&](Communicator& communicator) {
          CallOptions binomial;
          binomial.algorithm = "binomial";
          binomial.protocol = protocol;
          float value = 0;
          std::int64_t slept = 0;
          // All have connections to all; calls of one shape go the short way.
          for (int root = 0; root < 3; ++root)
            for (int i = 0; i < 3; ++i)
              ASSERT_TRUE(
                  communicator.broadcast(&value, &value, 1, DataType::float32, root, binomial)
                      .ok());
          for (int i = 0; i < calls; ++i) {
            ASSERT_TRUE(communicator.barrier().ok());
            if (communicator.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
            const std::int64_t before = sleeps();
            ASSERT_TRUE(
                communicator.broadcast(&value, &value, 1, DataType::float32, 0, binomial).ok());
            slept += sleeps() - before;
          }
          if (communicator.rank() == 1) {
            EXPECT_LE(slept, 3 * calls) << name(protocol);  // a busy machine makes some sleep
          }
        });
}

}  // namespace
}  // namespace unisono
