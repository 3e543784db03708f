// The table of reasons for which a rank can be at fault.

#include "comm/blame/fault_reasons.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "comm/blame/inquiry.h"

namespace unisono::comm {
namespace {

using Reason = FailureReason;

TEST(FaultRows, EveryReasonHasItsRow) {
  std::set<std::string> names;
  for (int number = 0; number < failure_reason_count; ++number) {
    const auto reason = static_cast<Reason>(number);
    EXPECT_EQ(fault_row(reason).reason, reason) << name(reason);
    names.insert(name(reason));
  }
  EXPECT_EQ(names.size(), failure_reason_count) << "a reason has no name, or another one's";
  for (int number = failure_reason_count; number < 256; ++number)
    EXPECT_EQ(&fault_row(static_cast<Reason>(number)), &fault_row(Reason::unknown)) << number;
}

TEST(FaultRows, NoTwoReasonsWeighTheSame) {
  std::set<int> weights;
  for (const FaultRow& row : fault_rows) {
    if (!row.can_suspect) continue;
    EXPECT_LE(row.weight, row.weight_if_not_overdue) << name(row.reason);
    EXPECT_TRUE(weights.insert(row.weight).second) << name(row.reason);
    const bool is_new =
        row.weight == row.weight_if_not_overdue || weights.insert(row.weight_if_not_overdue).second;
    EXPECT_TRUE(is_new) << name(row.reason);
  }
}

TEST(FaultRows, WhatIsLostIsNotLate) {
  for (const FaultRow& row : fault_rows) {
    EXPECT_FALSE(row.is_loss && row.counts_as_late) << name(row.reason);
    EXPECT_TRUE(row.is_loss || !row.has_ended) << name(row.reason);
    EXPECT_TRUE(row.can_suspect || !(row.is_loss || row.counts_as_late)) << name(row.reason);
  }
}

TEST(FaultRows, EveryReasonToSuspectARankHasASentence) {
  const std::map<Reason, std::string> sentences{
      {Reason::gone, "rank 1 is gone, as rank 0 found: the {text}"},
      {Reason::left,
       "rank 1 left the communicator (destroyed, or its process ended) while rank 0 still needed "
       "it in call 7"},
      {Reason::no_answer,
       "rank 1 does not answer: it is stopped, cut off, or busy outside of any call; rank 0 has "
       "waited for it for 2 s: the {text}"},
      {Reason::not_in_call,
       "rank 1 answers, but is not in a call of this communicator; rank 0 has waited for it for 2 "
       "s: the {text}"},
      {Reason::waits,
       "rank 0 waits in send to rank 1 (call 7), which answers and waits in a call itself, and no "
       "rank is known to be stopped; rank 0 has waited for it for 2 s: the {text}"},
      {Reason::mismatch, "the {text}"},
      {Reason::link,
       "the connection between rank 0 and rank 1 is broken, though both answer: the {text}"},
  };
  for (const FaultRow& row : fault_rows) {
    EXPECT_EQ(row.can_suspect, sentences.contains(row.reason)) << name(row.reason);
    if (!row.can_suspect) continue;
    Suspicions all;
    all.add(Suspicion{.reason = row.reason,
                      .culprit = 1,
                      .finder = 0,
                      .waits = {.what = CallWait::What::send, .call = 7},
                      .waited_ms = 2000,
                      .text = "the {text}"});
    EXPECT_EQ(all.verdict().message, sentences.at(row.reason));
    EXPECT_EQ(all.verdict().reason, row.reason);
    EXPECT_EQ(all.verdict().timed_out, row.counts_as_late) << name(row.reason);
  }
}

}  // namespace
}  // namespace unisono::comm
