#include "comm/blame/call_wait.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

namespace unisono::comm {
namespace {

using What = CallWait::What;
using Kind = trace::Waiting::Kind;

TEST(CallWait, IsAWordAndASentence) {
  struct Row {
    CallWait wait;
    const char* sentence;
  };
  for (const Row& row : {
           Row{{}, "waits in a call"},
           Row{{.what = What::send, .peer = 1, .call = 7}, "waits in send to rank 1 (call 7)"},
           Row{{.what = What::receive, .peer = 0, .call = 0}, "waits in recv from rank 0 (call 0)"},
           Row{{.what = What::messages, .peer = 2}, "waits in a group of messages for rank 2"},
           Row{{.what = What::collective, .collective = Collective::all_reduce, .call = 3},
               "waits in all_reduce (call 3)"},
       }) {
    EXPECT_EQ(describe(row.wait), row.sentence);
    EXPECT_TRUE(is_possible_wait(pack(row.wait), 3)) << row.sentence;
    EXPECT_EQ(unpack_wait(pack(row.wait)), row.wait) << row.sentence;
  }
}

TEST(CallWait, OfAMessageIsTheHalfThatWaits) {
  trace::Entry entry;
  entry.collective = Collective::point_to_point;
  entry.sequence = 7;
  const auto what = [&](Kind kind) {
    const CallWait wait = CallWait::of(entry, {.kind = kind, .peer = 4});
    EXPECT_EQ(wait.peer, 4);
    EXPECT_EQ(wait.call, 7);
    return wait.what;
  };
  EXPECT_EQ(what(Kind::message), What::receive);
  for (const Kind kind : {Kind::credit, Kind::destination, Kind::consumption})
    EXPECT_EQ(what(kind), What::send);
  EXPECT_EQ(what(Kind::connection), What::messages);
  entry.collective = Collective::all_gather;
  const CallWait wait = CallWait::of(entry, {.kind = Kind::message, .peer = 4});
  EXPECT_EQ(
      wait,
      (CallWait{
          .what = What::collective, .collective = Collective::all_gather, .peer = 4, .call = 7}));
}

TEST(CallWait, OfRanksOrCallsThatThereAreNotIsRefused) {
  const CallWait wait{.what = What::send, .peer = 3, .call = 7};
  EXPECT_TRUE(is_possible_wait(pack(wait), 4));
  EXPECT_FALSE(is_possible_wait(pack(wait), 3));
  EXPECT_EQ(unpack_wait(pack({.what = What::send, .call = std::int64_t{1} << 32})).call, -1);
  std::mt19937_64 random(std::random_device{}());
  int possible = 0;
  for (int i = 0; i < 100'000; ++i)
    if (const std::uint64_t word = random(); is_possible_wait(word, 1 << 23)) {
      ++possible;
      EXPECT_EQ(pack(unpack_wait(word)), word);
    }
  EXPECT_GT(possible, 0);
}

}  // namespace
}  // namespace unisono::comm
