#include "plan/check.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "plan/builder.h"
#include "plan/sample_plans.h"
#include "plan/text.h"
#include "plan/walk.h"
#include "support/random_plan.h"
#include "support/sanitized.h"

namespace unisono::plan {
namespace {

std::string error_of(const Plan& plan, const Limits& limits = format_limits()) {
  const Status status = check(plan, limits);
  if (status.ok()) return "no error";
  EXPECT_EQ(status.error().kind, ErrorKind::misuse);
  return status.error().message;
}

// What the check says of the ring of 4 ranks after `change` to it.
std::string ring_error(const std::function<void(Plan&)>& change) {
  Plan plan = test::ring();
  change(plan);
  return error_of(plan);
}

ThreadBlock& block(Plan& plan, std::size_t rank) { return plan.programs[rank].thread_blocks[0]; }
Step& step(Plan& plan, std::size_t rank, std::size_t node) {
  return std::get<Step>(block(plan, rank).body[node]);
}
Loop& loop(Plan& plan, std::size_t rank, std::size_t node) {
  return std::get<Loop>(block(plan, rank).body[node]);
}

TEST(Check, AcceptsTheSamplePlans) {
  for (const Plan& plan : test::sample_plans()) EXPECT_EQ(error_of(plan), "no error");
}

TEST(Check, RefusesWrongHeaders) {
  const auto wrong = [](const std::function<void(Header&)>& change) {
    return ring_error([&](Plan& plan) { change(plan.header); });
  };
  EXPECT_EQ(wrong([](Header& it) { it.name = "a b"; }),
            "a plan's name has 1 to 200 letters, digits, '_', '-', '.' or '+'; got 'a b'");
  EXPECT_NE(wrong([](Header& it) { it.name = ""; }), "no error");
  EXPECT_NE(wrong([](Header& it) { it.name = std::string(201, 'x'); }), "no error");
  EXPECT_EQ(wrong([](Header& it) { it.ranks = 0; }),
            "plan ring_all_reduce: 0 ranks; the plan format runs 1 to 1048576");
  EXPECT_EQ(wrong([](Header& it) { it.ranks = 5; }),
            "plan ring_all_reduce: 4 programs for 5 ranks; every rank needs one");
  EXPECT_EQ(wrong([](Header& it) { it.root = 1; }),
            "plan ring_all_reduce: root 1 given, but all_reduce has no root; it must be 0");
  EXPECT_EQ(wrong([](Header& it) {
              it.collective = Collective::broadcast;
              it.root = 4;
            }),
            "plan ring_all_reduce: root 4 is not a rank; ranks are 0 to 3");
  EXPECT_NE(wrong([](Header& it) { it.channels = 65; }), "no error");
  EXPECT_NE(wrong([](Header& it) { it.chunks_per_block = 0; }), "no error");
  EXPECT_EQ(wrong([](Header& it) { it.output_blocks = 4; }),
            "plan ring_all_reduce: 1 input and 4 output blocks; all_reduce of 4 ranks has 1 and 1");
  EXPECT_EQ(wrong([](Header& it) {
              it.min_bytes = 2;
              it.max_bytes = 1;
            }),
            "plan ring_all_reduce: serves 2 to 1 bytes, which no size matches; write 0 as the "
            "upper limit for no limit");
  EXPECT_NE(wrong([](Header& it) { it.min_bytes = std::uint64_t{1} << 63; }), "no error");
}

TEST(Check, RefusesProgramsOutOfOrder) {
  EXPECT_EQ(ring_error([](Plan& plan) { std::swap(plan.programs[1], plan.programs[2]); }),
            "plan ring_all_reduce: program 1 is of rank 2; they must be in order of ranks");
}

TEST(Check, RefusesWrongThreadBlocks) {
  const std::string rank_1 = "plan ring_all_reduce, rank 1: thread block 0: ";
  EXPECT_EQ(ring_error([](Plan& plan) { block(plan, 1).channel = 1; }),
            rank_1 + "channel 1; the plan has channels 0 to 0");
  EXPECT_EQ(ring_error([](Plan& plan) { block(plan, 1).send_peer = 4; }),
            rank_1 + "sends to rank 4; ranks are 0 to 3, and -1 means none");
  EXPECT_EQ(ring_error([](Plan& plan) { block(plan, 1).recv_peer = 1; }),
            rank_1 + "receives from rank 1, which is itself; use copy or reduce");
  EXPECT_EQ(ring_error([](Plan& plan) {
              plan.programs[1].thread_blocks.push_back({.channel = 0, .send_peer = 2});
            }),
            "plan ring_all_reduce, rank 1: thread block 1: sends to rank 2 on channel 0, as thread "
            "block 0 does; a connection belongs to one thread block, so use another channel");
  EXPECT_EQ(ring_error([](Plan& plan) {
              plan.header.channels = 2;
              plan.programs[1].thread_blocks.push_back({.channel = 1, .send_peer = 2});
            }),
            "no error");
}

TEST(Check, RefusesStepsWithoutTheirPeer) {
  EXPECT_EQ(ring_error([](Plan& plan) { block(plan, 2).send_peer = -1; }),
            "plan ring_all_reduce, rank 2: thread block 0, step 0 (send): the thread block has no "
            "peer to send to; give it a send peer");
  EXPECT_EQ(ring_error([](Plan& plan) { block(plan, 2).recv_peer = -1; }),
            "plan ring_all_reduce, rank 2: thread block 0, step 1 (recv_reduce_send): the thread "
            "block has no peer to receive from; give it a receive peer");
}

TEST(Check, NamesTheIterationInWhichAnIndexLeavesItsBuffer) {
  EXPECT_EQ(ring_error([](Plan& plan) {
              std::get<Step>(loop(plan, 3, 3).body[0]).destination.index = affine(2, 2);
            }),
            "plan ring_all_reduce, rank 3: thread block 0, step 5 (recv_copy_send, i = 1): "
            "output[4] is outside of the buffer; it has 4 chunks, 0..3");
  EXPECT_EQ(ring_error([](Plan& plan) { step(plan, 0, 0).source.index = -1; }),
            "plan ring_all_reduce, rank 0: thread block 0, step 0 (send): input[-1] is outside of "
            "the buffer; it has 4 chunks, 0..3");
  EXPECT_EQ(ring_error([](Plan& plan) { step(plan, 0, 0).count = 5; }),
            "plan ring_all_reduce, rank 0: thread block 0, step 0 (send): input[0..4] is outside "
            "of the buffer; it has 4 chunks, 0..3");
  EXPECT_EQ(ring_error([](Plan& plan) { step(plan, 0, 0).source.buffer = Buffer::scratch; }),
            "plan ring_all_reduce, rank 0: thread block 0, step 0 (send): scratch[0] is outside of "
            "the buffer; that buffer has no chunks");
}

TEST(Check, RefusesIndicesThatOverflow) {
  const auto with = [](const std::function<void(Index&)>& change) {
    return ring_error(
        [&](Plan& plan) { change(std::get<Step>(loop(plan, 0, 1).body[0]).source.index); });
  };
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  for (std::int64_t value : {most, least, least + 1, most / 2 + 2}) {
    for (const auto& change : std::vector<std::function<void(Index&)>>{
             [&](Index& it) { it.base = value; }, [&](Index& it) { it.coefficient[0] = value; },
             [&](Index& it) { it.scale = value; }, [&](Index& it) { it.offset = value; },
             [&](Index& it) { it.modulus = value; }})
      EXPECT_NE(with(change), "no error") << value;
  }
  EXPECT_EQ(with([](Index& it) { it.coefficient[1] = 1; }),
            "plan ring_all_reduce, rank 0: thread block 0, step 1 (recv_reduce_send): an index "
            "uses loop variable j, but the step is not inside that loop");
  EXPECT_NE(with([](Index& it) { it.modulus = -4; }), "no error");
}

TEST(Check, RefusesWrongDependencies) {
  const auto with = [](const Dependency& dependency) {
    return ring_error([&](Plan& plan) {
      plan.programs[0].thread_blocks.push_back({.body = {Step{.source = {Buffer::input, 0},
                                                              .destination = {Buffer::output, 0},
                                                              .after = {dependency}}}});
    });
  };
  const std::string where = "plan ring_all_reduce, rank 0: thread block 1, step 0 (copy): ";
  EXPECT_EQ(with({0, 7}), "no error");
  EXPECT_EQ(with({0, 8}), where + "waits for 8 steps of thread block 0, which has 7");
  EXPECT_EQ(with({0, -1}), where + "waits for -1 steps of thread block 0, which has 7");
  EXPECT_EQ(with({1, 0}),
            where + "waits for thread block 1; it can wait for 0 to 1 but not itself");
  EXPECT_EQ(with({2, 0}),
            where + "waits for thread block 2; it can wait for 0 to 1 but not itself");
}

TEST(Check, RefusesLoopsThatCannotBeUnrolled) {
  EXPECT_NE(ring_error([](Plan& plan) { loop(plan, 0, 1).count = 0; }), "no error");
  EXPECT_NE(ring_error([](Plan& plan) { loop(plan, 0, 1).count = INT64_MAX; }), "no error");
  EXPECT_NE(ring_error([](Plan& plan) { loop(plan, 0, 1).body.clear(); }), "no error");
  EXPECT_EQ(ring_error([](Plan& plan) {
              loop(plan, 0, 1) = {.count = 1 << 12, .body = {Loop{1 << 13, loop(plan, 0, 1).body}}};
            }),
            "plan ring_all_reduce, rank 0: thread block 0: more than 16777216 steps with its loops "
            "unrolled, the limit of the plan format");
  EXPECT_EQ(ring_error([](Plan& plan) {
              const Body body = loop(plan, 0, 1).body;
              loop(plan, 0, 1).body = {Loop{1, {Loop{1, body}}}};
            }),
            "plan ring_all_reduce, rank 0: thread block 0: loops nested 3 deep; at most 2 are");
}

TEST(Check, FieldsThatAnOperationDoesNotUseStayAtTheirDefaults) {
  EXPECT_NE(ring_error([](Plan& plan) { step(plan, 0, 0).destination = {Buffer::output, 1}; }),
            "no error");
  EXPECT_NE(ring_error([](Plan& plan) { step(plan, 0, 4).source = {Buffer::output, 1}; }),
            "no error");
  EXPECT_NE(ring_error([](Plan& plan) { step(plan, 0, 0).peers = {1}; }), "no error");
}

TEST(Check, AppliesTheExecutorsLimits) {
  Limits limits = format_limits();
  limits.executor = "the small engine";
  limits.max_steps = 6;
  EXPECT_EQ(error_of(test::ring(), limits),
            "plan ring_all_reduce, rank 0: thread block 0: more than 6 steps with its loops "
            "unrolled, the limit of the small engine");
  limits = format_limits();
  limits.executor = "the small engine";
  limits.operations &= ~(1U << static_cast<unsigned>(Operation::read_reduce));
  EXPECT_EQ(error_of(test::ring(), limits), "no error");
  EXPECT_EQ(error_of(test::one_sided(), limits),
            "plan one_sided, rank 0: thread block 0, step 3 (read_reduce): the small engine cannot "
            "run this operation");
  EXPECT_NE(error_of(test::ring(), Limits{.executor = "nothing"}), "no error");
}

TEST(Check, APutIsCheckedAgainstThePeersBuffer) {
  Plan plan = test::one_sided();
  plan.programs[1].scratch_blocks = 0;
  plan.programs[1].thread_blocks[1].body.pop_back();
  EXPECT_EQ(error_of(plan),
            "plan one_sided, rank 0: thread block 0, step 4 (put): scratch[0] of rank 1 is outside "
            "of the buffer; that buffer has no chunks");
  // One program alone does not tell how much scratch a peer has.
  EXPECT_TRUE(check(plan.header, plan.programs[0], format_limits()).ok());
}

TEST(Check, LongLoopsWithAModuloAreDecidedWithoutUnrolling) {
  Plan plan = test::ring();
  plan.programs[0].thread_blocks.resize(200);
  for (std::size_t i = 1; i < 200; ++i) {
    ProgramBuilder builder(0);
    BlockBuilder made = builder.block(0, -1, -1);
    made.loop(1 << 23);
    made.copy(input(affine(5, -7, 4)), output(affine(1, 6, 4)));
    made.end_loop();
    plan.programs[0].thread_blocks[i] = builder.take().thread_blocks[0];
  }
  EXPECT_EQ(error_of(plan), "no error");
}

// All indices of the plan, unrolled, are inside their buffers.
bool all_indices_fit(const Plan& plan) {
  const Header& header = plan.header;
  const auto fits = [&](int rank, const Location& location, const LoopValues& loops, int count) {
    const auto& program = plan.programs[static_cast<std::size_t>(rank)];
    const std::int64_t blocks = location.buffer == Buffer::input    ? input_blocks_of(header, rank)
                                : location.buffer == Buffer::output ? output_blocks_of(header, rank)
                                                                    : program.scratch_blocks;
    const std::int64_t first = location.index.at(loops);
    return first >= 0 && first + count <= blocks * header.chunks_per_block;
  };
  for (const RankProgram& program : plan.programs)
    for (const ThreadBlock& it : program.thread_blocks)
      for (StepCursor at(it.body); at.step() != nullptr; at.advance()) {
        const Step& now = *at.step();
        const int owner = now.operation == Operation::put ? it.send_peer : program.rank;
        if (now.peers.empty() && reads_source(now.operation) &&
            !fits(program.rank, now.source, at.loops(), now.count))
          return false;
        for (int peer : now.peers)
          if (!fits(peer, now.source, at.loops(), now.count)) return false;
        if (writes_destination(now.operation) &&
            !fits(owner, now.destination, at.loops(), now.count))
          return false;
        for (const Dependency& dependency : now.after) {
          const auto& awaited =
              program.thread_blocks[static_cast<std::size_t>(dependency.thread_block)];
          const std::int64_t steps = dependency.steps.at(at.loops());
          if (steps < 0 || steps > unrolled_steps(awaited.body)) return false;
        }
      }
  return true;
}

Step* random_step(Body& body, std::mt19937_64& random) {
  if (body.empty()) return nullptr;
  Node& node = body[random() % body.size()];
  if (Loop* inside = std::get_if<Loop>(&node)) return random_step(inside->body, random);
  return std::get_if<Step>(&node);
}

// The bounds of an index are exact in both directions, whatever its form: the check agrees with
// going through every iteration.
TEST(Check, AgreesWithUnrollingOnChangedIndices) {
  int refused = 0;
  int accepted = 0;
  for (std::uint64_t seed = 0; seed < (test::is_sanitized ? 500 : 4000); ++seed) {
    Plan plan = test::random_plan(seed, {.with_long_loops = seed % 10 == 0});
    std::mt19937_64 random(seed);
    RankProgram& program = plan.programs[random() % plan.programs.size()];
    if (program.thread_blocks.empty()) continue;
    ThreadBlock& it = program.thread_blocks[random() % program.thread_blocks.size()];
    Step* changed = random_step(it.body, random);
    if (changed == nullptr) continue;
    Index* index = writes_destination(changed->operation) ? &changed->destination.index
                   : reads_source(changed->operation)     ? &changed->source.index
                   : changed->after.empty()               ? nullptr
                                                          : &changed->after[0].steps;
    if (index == nullptr) continue;
    const auto little = [&] { return static_cast<std::int64_t>(random() % 7) - 3; };
    switch (random() % 5) {
      case 0:
        index->base += little();
        break;
      case 1:
        index->modulus = std::max<std::int64_t>(0, index->modulus + little());
        break;
      case 2:
        index->scale += little();
        break;
      case 3:
        index->offset += little();
        break;
      default:
        for (std::int64_t& coefficient : index->coefficient)
          if (coefficient != 0) coefficient += little();
    }
    const std::string error = error_of(plan);
    ASSERT_EQ(error == "no error", all_indices_fit(plan)) << seed << ": " << error << "\n"
                                                          << print(plan.header, program);
    ++(error == "no error" ? accepted : refused);
  }
  EXPECT_GT(refused, test::is_sanitized ? 30 : 300);
  EXPECT_GT(accepted, test::is_sanitized ? 50 : 500);
}

}  // namespace
}  // namespace unisono::plan
