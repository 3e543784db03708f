// Ranks of one call may mix in place and out of place, each by its own buffers. That works because
// every rank exchanges the same messages either way.
#include <gtest/gtest.h>

#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "algorithm/algorithm.h"
#include "algorithm/every_entry.h"
#include "algorithm/placements.h"
#include "base/str.h"
#include "plan/walk.h"
#include "support/sanitized.h"

namespace unisono::algorithm {
namespace {

// What both ends of a message must agree on: so many chunks, from this one of a block on.
struct Message {
  std::int64_t chunk_of_block = 0;
  int count = 0;
  bool operator==(const Message&) const = default;
};
// By direction, peer and channel; in order.
using Traffic = std::map<std::tuple<bool, int, int>, std::vector<Message>>;

Traffic traffic_of(const plan::RankProgram& program, int chunks_per_block) {
  Traffic traffic;
  for (const plan::ThreadBlock& block : program.thread_blocks)
    for (plan::StepCursor at(block.body); at.step() != nullptr; at.advance()) {
      const plan::Step& step = *at.step();
      const plan::Location& place =
          plan::writes_destination(step.operation) ? step.destination : step.source;
      const Message message{place.index.at(at.loops()) % chunks_per_block, step.count};
      if (plan::sends(step.operation))
        traffic[{true, block.send_peer, block.channel}].push_back(message);
      if (plan::receives(step.operation))
        traffic[{false, block.recv_peer, block.channel}].push_back(message);
    }
  return traffic;
}

void expect_same_messages(const Entry& entry, Request request) {
  request.in_place = false;
  const Result<plan::Plan> out_of_place = make_plan(entry, request);
  request.in_place = true;
  const Result<plan::Plan> in_place = make_plan(entry, request);
  ASSERT_TRUE(out_of_place.ok()) << out_of_place.error().message;
  ASSERT_TRUE(in_place.ok()) << in_place.error().message;
  // The header decides how large the chunks and the tiles are.
  plan::Header header = in_place->header;
  header.in_place = false;
  plan::set_blocks(header);
  ASSERT_EQ(header, out_of_place->header);
  for (std::size_t rank = 0; rank < in_place->programs.size(); ++rank) {
    const plan::RankProgram& one = in_place->programs[rank];
    const plan::RankProgram& other = out_of_place->programs[rank];
    ASSERT_EQ(traffic_of(one, header.chunks_per_block), traffic_of(other, header.chunks_per_block))
        << "rank " << rank;
    // Only the root has an input and an output that could be one.
    if (has_root(entry.collective) && static_cast<int>(rank) != request.root) {
      ASSERT_EQ(one, other) << "rank " << rank;
    }
  }
}

class InPlace : public testing::TestWithParam<const Entry*> {};

TEST_P(InPlace, MessagesAreThoseOfOutOfPlace) {
  const Entry& entry = *GetParam();
  int compared = 0;
  for (int ranks : {1, 2, 3, 5, 8, 9, 13}) {
    if (test::is_sanitized && ranks > 5) break;
    for (const NamedPlacement& where : placements_of(ranks))
      for (int channels : {1, 3})
        for (int root : {0, ranks / 2, ranks - 1}) {
          if (root > 0 && !has_root(entry.collective)) continue;
          Request request{.collective = entry.collective,
                          .placement = where.placement,
                          .root = root,
                          .in_place = true,
                          .channels = channels};
          if (!entry.supports(request).ok()) continue;
          SCOPED_TRACE(str(entry.plan_name(), " of ", ranks, " ranks, ", where.name, ", ", channels,
                           " channels, root ", root));
          expect_same_messages(entry, request);
          if (HasFailure()) return;
          ++compared;
        }
  }
  // With unequal blocks there may be no way in place at all.
  if (entry.collective != Collective::all_to_all_v) {
    EXPECT_GT(compared, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Every, InPlace, testing::ValuesIn(every_entry()), name_of_entry);

}  // namespace
}  // namespace unisono::algorithm
