// One-sided steps: what is put is there after a signal and a wait, and nobody overwrites or reads
// what another rank may still be using.
#include <gtest/gtest.h>

#include "compile/compile.h"
#include "plan/walk.h"
#include "programs.h"
#include "support/interpreter.h"

namespace unisono {
namespace {

using compile::Chunk;
using compile::Kind;
using compile::Layout;
using compile::Trace;
using test::Writer;

// Steps that may be refused: the first refusal is kept.
class OneSided {
 public:
  OneSided(Collective collective, int ranks, int chunks) : p_(collective, ranks, chunks, false) {}

  Writer& p() { return p_; }
  Chunk put(const Chunk& source, int rank, int buffer, std::int64_t index, int channel = -1) {
    const auto target = p_.trace().place(rank, buffer, index, source.count, 0);
    return keep(p_.trace().add(Kind::put, source, *target, channel, 0));
  }
  Chunk read_reduce(const Chunk& into, const Chunk& other) {
    return keep(p_.trace().add(Kind::read_reduce, other, into, -1, 0));
  }
  void signal(int from, int to, int channel = -1) { keep(p_.trace().signal(from, to, channel, 0)); }
  void wait(int at, int from, int channel = -1) { keep(p_.trace().wait(at, from, channel, 0)); }
  void meet(int from, int to) {
    signal(from, to);
    wait(to, from);
  }
  // What compiling says, or what an interpreter finds wrong with the plan; "" for neither.
  std::string fault(const compile::Options& options = {.check_passes = true}) {
    if (!refusal_.empty()) return refusal_;
    const auto compiled = compile::compile(p_.trace(), options);
    if (!compiled.ok()) return compiled.error().message;
    return test::find_fault(compiled->plan, 6, 7, options.slots).value_or("");
  }

 private:
  void keep(const Status& status) {
    if (!status.ok() && refusal_.empty()) refusal_ = status.error().message;
  }
  Chunk keep(const Result<Chunk>& chunk) {
    if (chunk.ok()) return *chunk;
    keep(Status(chunk.error()));
    return {};
  }

  Writer p_;
  std::string refusal_;
};

// Everybody puts its block into everybody's output.
OneSided all_gather(int ranks, int chunks) {
  OneSided one(Collective::all_gather, ranks, chunks);
  for (int from = 0; from < ranks; ++from) {
    const Chunk c = one.p().take(from, Layout::input, 0, chunks);
    one.p().copy(c, from, Layout::output, from * chunks);
    for (int step = 1; step < ranks; ++step) {
      const int to = (from + step) % ranks;
      one.put(c, to, Layout::output, from * chunks);
      one.meet(from, to);
    }
  }
  return one;
}

// Rank i sums chunk i by reading the others' inputs, and puts the sum everywhere.
OneSided all_reduce(int ranks) {
  OneSided one(Collective::all_reduce, ranks, ranks);
  for (int i = 0; i < ranks; ++i) {
    Chunk c = one.p().copy(one.p().take(i, Layout::input, i), i, Layout::output, i);
    for (int step = 1; step < ranks; ++step)
      c = one.read_reduce(c, one.p().take((i + step) % ranks, Layout::input, i));
    for (int step = 1; step < ranks; ++step) {
      const int to = (i + step) % ranks;
      one.put(c, to, Layout::output, i);
      one.meet(i, to);
    }
  }
  return one;
}

TEST(OneSided, PutSignalAndWaitAreProvedAndRun) {
  for (const int ranks : {2, 3, 5}) {
    EXPECT_EQ(all_gather(ranks, 3).fault(), "") << ranks;
    EXPECT_EQ(all_reduce(ranks).fault(), "") << ranks;
    EXPECT_EQ(all_gather(ranks, 2).fault({.instances = 2, .slots = 1}), "") << ranks;
  }
}

// Sums pass through scratch of the next rank; every slot is used twice.
OneSided relay(bool gives_back) {
  OneSided one(Collective::broadcast, 2, 2);
  const int scratch = one.p().scratch(1);
  one.p().copy(one.p().take(0, Layout::input, 0, 2), 0, Layout::output, 0);
  for (int chunk = 0; chunk < 2; ++chunk) {
    one.put(one.p().take(0, Layout::input, chunk), 1, scratch, 0);
    one.meet(0, 1);
    one.p().copy(one.p().take(1, scratch, 0), 1, Layout::output, chunk);
    if (gives_back && chunk == 0) one.meet(1, 0);
  }
  return one;
}

TEST(OneSided, MemoryIsUsedAgainOnceItsOwnerHasSaidSo) {
  EXPECT_EQ(relay(true).fault(), "");
  EXPECT_NE(relay(false).fault().find("race: rank 0 overwrites what rank 1 reads"),
            std::string::npos)
      << relay(false).fault();
}

TEST(OneSided, WhatWasPutIsNotUsedBeforeTheWait) {
  OneSided one(Collective::broadcast, 2, 1);
  one.p().copy(one.p().take(0, Layout::input, 0), 0, Layout::output, 0);
  one.put(one.p().take(0, Layout::input, 0), 1, Layout::output, 0);
  const auto taken = one.p().trace().take(1, Layout::output, 0, 1, 0);
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().message,
            "not arrived yet: output[0] of rank 1 was put by a step; before it is used, signal(0, "
            "1) and wait(1, 0) must run on channel 0");
  EXPECT_NE(one.fault().find("not arrived yet"), std::string::npos);
}

TEST(OneSided, SignalsAndWaitsBelongTogether) {
  OneSided early(Collective::broadcast, 2, 1);
  early.wait(1, 0);
  EXPECT_EQ(early.fault(),
            "deadlock: rank 1 waits for a signal from rank 0 on channel 0, which has sent 0 there "
            "so far, and 0 were consumed; signal(0, 1) must run first");
  OneSided left(Collective::broadcast, 2, 1);
  left.signal(0, 1);
  EXPECT_EQ(left.fault(),
            "unmatched signal: rank 0 signals rank 1 1 times on channel 0, which waits 0 times; "
            "every signal needs its wait");
  OneSided other_channel(Collective::broadcast, 2, 1);
  other_channel.signal(0, 1, 1);
  other_channel.wait(1, 0, 0);
  EXPECT_NE(other_channel.fault().find("deadlock"), std::string::npos);
  OneSided itself(Collective::broadcast, 2, 1);
  itself.signal(1, 1);
  EXPECT_EQ(itself.fault(), "rank 1 signals itself; a rank's own steps are in order");
}

TEST(OneSided, ReadingWhatTheOtherRankWritesNeedsItsSignal) {
  for (const bool is_signalled : {false, true}) {
    OneSided one(Collective::reduce, 3, 1);
    Chunk sum = one.p().copy(one.p().take(0, Layout::input, 0), 0, Layout::output, 0);
    const int scratch = one.p().scratch(1);
    Chunk there = one.p().copy(one.p().take(1, Layout::input, 0), 1, scratch, 0);
    there = one.p().reduce(there, one.p().take(2, Layout::input, 0));
    if (is_signalled) one.meet(1, 0);
    one.read_reduce(sum, there);
    if (is_signalled)
      EXPECT_EQ(one.fault(), "");
    else
      EXPECT_NE(one.fault().find("race: rank 0 uses what rank 1 writes"), std::string::npos);
  }
}

}  // namespace
}  // namespace unisono
