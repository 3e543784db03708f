// What calls between hosts ask of the system, by count.

#include <gtest/gtest.h>

#include <array>

#include "support/counted_calls.h"
#include "support/ranks.h"
#include "support/sanitized.h"

namespace unisono::test {
namespace {

// A whole call: ranks that may not spin answer each other in turn. What is counted is bounded by
// messages and their credits, however long either of them takes.
TEST(SystemCalls, ACallThatBlocksAsksOnceForEachThingThatComes) {
  if (is_sanitized) GTEST_SKIP() << "a sanitizer wraps system calls itself";
  constexpr int rounds = 200;
  std::array<CountedCalls, 2> counted;
  const SettingValues settings{{"UNISONO_SPIN", "0"}, {"UNISONO_SOCKET_STREAMS", "1"}};
  run_ranks({.ranks = 2, .nodes = 2, .transport = "socket", .settings = settings},
            [&](Communicator& comm) {
              std::array<float, 2> data{1, 2};
              const int peer = 1 - comm.rank();
              const auto there_and_back = [&] {
                for (const bool sends : {comm.rank() == 0, comm.rank() != 0})
                  EXPECT_TRUE((sends ? comm.send(data.data(), 2, DataType::float32, peer)
                                     : comm.recv(data.data(), 2, DataType::float32, peer))
                                  .ok());
              };
              for (int i = 0; i < 20; ++i) there_and_back();
              CountedCalls::of_this_thread().reset();
              for (int i = 0; i < rounds; ++i) there_and_back();
              counted[static_cast<std::size_t>(comm.rank())] = CountedCalls::of_this_thread();
            });
  for (const CountedCalls& calls : counted) {
    // A message each way, and a credit for several of them.
    constexpr int most = rounds + rounds / 2;
    EXPECT_GE(calls.sends, rounds);
    EXPECT_LE(calls.sends, most);
    EXPECT_LE(calls.receives, most);
    EXPECT_LE(calls.events, most);
    EXPECT_LE(calls.empty, rounds / 20);
    EXPECT_LE(calls.looks, rounds / 20 + calls.timeouts)
        << "a peer is looked at once a wait has lasted long";
  }
}

}  // namespace
}  // namespace unisono::test
