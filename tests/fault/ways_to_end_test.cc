// Every way in which a rank can end, and what the others say of it: the rank, the reason and who
// found it.

#include <gtest/gtest.h>

#include <string>
#include <string_view>
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

// Before the first call, when no rank has a connection for data; between calls; in a call, as far
// as that can be aimed at.
struct Moment {
  const char* round;
  const char* after_us;
};
const std::vector<Moment> moments{{"0", "0"}, {"4", "0"}, {"4", "300"}};
const std::vector<std::string> things{"nothing", "child", "thread", "pending"};

struct Shape {
  int ranks;
  int nodes;
  const char* transport;
};

class WaysToEnd : public testing::TestWithParam<Shape> {};

// `call` is the number of the call that needed rank 1; empty where it is not known.
void check(const test::Outcome& outcome, const std::string& reason, const std::string& call) {
  EXPECT_TRUE(outcome.begins("outcome=failed peer=1 ")) << outcome.output;
  EXPECT_EQ(outcome.word("timed_out"), "0") << outcome.output;
  EXPECT_EQ(outcome.word("reason"), reason) << outcome.output;
  if (reason != "left") return;
  EXPECT_NE(outcome.word("finder"), "-1") << outcome.output;
  if (!call.empty()) {
    EXPECT_EQ(outcome.word("call"), call) << outcome.output;
  }
  const std::string said =
      str("rank 1 left the communicator (destroyed, or its process ended) while "
          "rank ",
          outcome.word("finder"), " still needed it in call ", outcome.word("call"));
  EXPECT_NE(outcome.output.find(said), std::string::npos) << outcome.output;
}

TEST_P(WaysToEnd, AllOthersNameTheRankAndTheReason) {
  const Shape shape = GetParam();
  // Each way has each thing beside it in some shape, at some moment.
  std::size_t turn = static_cast<std::size_t>(shape.ranks);
  for (const Way& way : ways) {
    for (const Moment& moment : moments) {
      const std::string& thing = things[turn++ % things.size()];
      const bool is_in_call = std::string_view(moment.after_us) != "0";
      // A call of its own that runs keeps a rank from destroying its communicator.
      if (is_in_call && (way.kind == "return" || way.kind == "leave")) continue;
      SCOPED_TRACE(str(way.kind, " at call ", moment.round, " after ", moment.after_us,
                       " us, beside ", thing));
      const auto outcomes =
          test::run_processes({.ranks = shape.ranks,
                               .nodes = shape.nodes,
                               .transport = shape.transport,
                               .timeout = test::deadline_of_calls},
                              {"--kind", way.kind, "--victims", "1", "--at", moment.round,
                               "--after-us", moment.after_us, "--beside", thing, "--rounds",
                               "1000000", "--for-ms", "-1", "--elements", "1000"});
      const bool is_call_known = !is_in_call && thing != "pending";
      for (int rank = 0; rank < shape.ranks; ++rank)
        if (rank != 1)
          check(outcomes[static_cast<std::size_t>(rank)], way.reason,
                is_call_known ? moment.round : "");
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
