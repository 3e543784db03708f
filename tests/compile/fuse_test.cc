// Fusion, rule by rule: what each makes of the smallest program that it applies to, and what keeps
// it from applying.
#include <gtest/gtest.h>

#include "base/str.h"
#include "compile/compile.h"
#include "programs.h"
#include "support/golden.h"

namespace unisono {
namespace {

using compile::Chunk;
using compile::Layout;
using compile::Trace;
using test::Writer;

class Rules {
 public:
  void add(std::string_view what, Trace& trace, bool in_place) {
    text_ += str("\n==== ", what, "\n");
    for (const std::string_view pass : {"lower", "fuse"}) {
      const auto state = compile::dump_after(trace, {.in_place = in_place}, pass);
      ASSERT_TRUE(state.ok()) << state.error().message;
      text_ += str("-- after ", pass, "\n", *state);
    }
    const auto compiled = compile::compile(trace, {.in_place = in_place, .check_passes = true});
    EXPECT_TRUE(compiled.ok()) << what << ": " << compiled.error().message;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_ = "# what each rule of fusion makes, and where it does not apply\n";
};

// Rank 2's contribution goes by way of scratch to the root, where rank 1's has been added before.
Trace received_then_added(bool keeps_it) {
  Writer p(Collective::reduce, 3, 1, true);
  const int scratch = p.scratch(1);
  Chunk sum = p.reduce(p.take(0, Layout::input, 0), p.take(1, Layout::input, 0));
  const Chunk other = p.copy(p.take(2, Layout::input, 0), 0, scratch, 0);
  p.reduce(sum, other);
  if (keeps_it) p.copy(p.take(0, scratch, 0), 1, scratch, 0);
  return std::move(p.trace());
}

// The root's own contribution is still where it was given.
Trace received_then_added_to_what_was_given() {
  Writer p(Collective::reduce, 2, 1, false);
  const int scratch = p.scratch(1);
  const Chunk sum = p.copy(p.take(0, Layout::input, 0), 0, Layout::output, 0);
  p.reduce(sum, p.copy(p.take(1, Layout::input, 0), 0, scratch, 0));
  return std::move(p.trace());
}

Trace passed_on(int channel) {
  Writer p(Collective::broadcast, 3, 1, false);
  p.copy(p.take(0, Layout::input, 0), 0, Layout::output, 0);
  const Chunk c = p.copy(p.take(0, Layout::input, 0), 1, Layout::output, 0);
  p.copy(c, 2, Layout::output, 0, channel);
  return std::move(p.trace());
}

// Rank 1 passes what it receives on to two others: one of them is part of the step.
Trace passed_on_to_two() {
  Writer p(Collective::broadcast, 4, 1, false);
  p.copy(p.take(0, Layout::input, 0), 0, Layout::output, 0);
  const Chunk c = p.copy(p.take(0, Layout::input, 0), 1, Layout::output, 0);
  p.copy(c, 2, Layout::output, 0);
  p.copy(c, 3, Layout::output, 0);
  return std::move(p.trace());
}

// Sums grow along the ranks, the result goes round.
Trace summed_along(int ranks) {
  Writer p(Collective::all_reduce, ranks, 1, true);
  Chunk c = p.take(0, Layout::input, 0);
  for (int rank = 1; rank < ranks; ++rank) c = p.reduce(p.take(rank, Layout::input, 0), c);
  for (int step = 0; step + 1 < ranks; ++step) c = p.copy(c, step, Layout::output, 0);
  return std::move(p.trace());
}

// Each sends what it adds the other's to: the reduction waits for the message to be taken, and
// fused with the recv would keep it from being taken.
Trace exchanged() {
  Writer p(Collective::all_reduce, 2, 1, true);
  const int scratch = p.scratch(1);
  std::vector<Chunk> others;
  for (int rank = 0; rank < 2; ++rank)
    others.push_back(p.copy(p.take(1 - rank, Layout::input, 0), rank, scratch, 0));
  for (int rank = 0; rank < 2; ++rank)
    p.reduce(p.take(rank, Layout::input, 0), others[static_cast<std::size_t>(rank)]);
  return std::move(p.trace());
}

TEST(Fuse, DoesWhatTheGoldenTextShowsRuleByRule) {
  Rules rules;
  const auto add = [&](std::string_view what, Trace trace, bool in_place = false) {
    rules.add(what, trace, in_place);
  };
  add("rrc: recv D; reduce D -> X", received_then_added(false));
  add("no rrc: what was received is used again", received_then_added(true));
  add("rrc: copy I -> X; rrc X -> X", received_then_added_to_what_was_given());
  add("no rrc: in place, the reduction overwrites what the rank sends", exchanged(), true);
  add("rcs: recv D; send D", passed_on(-1));
  add("no rcs: the message goes on by another channel", passed_on(1));
  add("rcs: only with one of two peers", passed_on_to_two());
  add("rrs: rrc S -> D; send D, and D is not needed. rrcs: D is a result", summed_along(3));
  test::expect_golden("compile_fusion.txt", rules.text());
}

}  // namespace
}  // namespace unisono
