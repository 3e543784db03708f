// Every way in which a rank can end, and what the others say of it: the rank, the reason and who
// found it.

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "base/str.h"
#include "fault/rank_processes.h"
#include "support/eventually.h"

namespace unisono {
namespace {

// How a rank ends, and the reason that all others find. The launcher's last signal, a crash and
// _exit() leave nothing in order.
struct Way {
  std::string kind;
  std::string reason;
};
const std::vector<Way> ways{{"kill", "gone"},      {"signal-15", "gone"}, {"signal-6", "gone"},
                            {"signal-11", "gone"}, {"quit", "gone"},      {"exit", "left"},
                            {"return", "left"},    {"leave", "left"},     {"abort", "aborted"}};

// Before the first call, when no rank has a connection for data, and between calls.
const std::vector<std::string> rounds{"0", "4"};

struct Shape {
  int ranks;
  int nodes;
  const char* transport;
};

class WaysToEnd : public testing::TestWithParam<Shape> {};

TEST_P(WaysToEnd, AllOthersNameTheRankAndTheReason) {
  const Shape shape = GetParam();
  for (const Way& way : ways) {
    for (const std::string& round : rounds) {
      SCOPED_TRACE(str(way.kind, " before call ", round));
      const auto outcomes =
          test::run_processes({.ranks = shape.ranks,
                               .nodes = shape.nodes,
                               .transport = shape.transport,
                               .timeout = test::deadline_of_calls},
                              {"--kind", way.kind, "--victims", "1", "--at", round, "--rounds",
                               "1000000", "--for-ms", "-1", "--elements", "1000"});
      for (int rank = 0; rank < shape.ranks; ++rank) {
        if (rank == 1) continue;
        const test::Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
        EXPECT_TRUE(outcome.begins("outcome=failed peer=1 "))
            << "rank " << rank << ": " << outcome.output;
        EXPECT_EQ(outcome.word("timed_out"), "0") << "rank " << rank << ": " << outcome.output;
        EXPECT_EQ(outcome.word("reason"), way.reason) << "rank " << rank << ": " << outcome.output;
        if (way.reason != "left") continue;
        // The call that needed it is the finder's, which every rank's message quotes.
        EXPECT_NE(outcome.word("finder"), "-1") << outcome.output;
        EXPECT_EQ(outcome.word("call"), round) << outcome.output;
        EXPECT_NE(
            outcome.output.find(str("rank 1 left the communicator (destroyed, or its process "
                                    "ended) while rank ",
                                    outcome.word("finder"), " still needed it in call ", round)),
            std::string::npos)
            << outcome.output;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, WaysToEnd,
                         testing::Values(Shape{2, 1, ""}, Shape{3, 1, "socket"}, Shape{4, 2, ""},
                                         Shape{5, 3, ""}),
                         [](const auto& tested) {
                           return str("ranks", tested.param.ranks, "nodes", tested.param.nodes,
                                      tested.param.transport);
                         });

}  // namespace
}  // namespace unisono
