// Plans of one-sided steps, run on memory that ranks reach and on memory that they do not.
#include <gtest/gtest.h>

#include "plan/builder.h"
#include "plan/partners.h"
#include "plan/walk.h"
#include "support/engine_cluster.h"
#include "support/sanitized.h"
#include "verify/verify.h"

namespace unisono {
namespace {

using plan::BlockBuilder;
using plan::input;
using plan::Operation;
using plan::output;
using plan::Plan;
using plan::ProgramBuilder;
using plan::scratch;
using test::EngineCluster;
using test::Problem;

Plan begin(Collective collective, int ranks, int chunks, Protocol protocol) {
  Plan out;
  out.header.name = "one_sided";
  out.header.collective = collective;
  out.header.ranks = ranks;
  out.header.protocol = protocol;
  out.header.chunks_per_block = chunks;
  plan::set_blocks(out.header);
  return out;
}

Plan proved(Plan made) {
  made.header.max_step_count = plan::max_step_count(made);
  const verify::Report report = verify::verify(made, {.slots = 2});
  EXPECT_TRUE(report.ok()) << report.failures.front().describe();
  return made;
}

// Everybody puts its block into everybody's output.
Plan put_all_gather(int ranks, Protocol protocol, bool in_place) {
  constexpr int chunks = 3;
  Plan out = begin(Collective::all_gather, ranks, chunks, protocol);
  out.header.in_place = in_place;
  for (int rank = 0; rank < ranks; ++rank) {
    ProgramBuilder program(rank);
    if (!in_place) program.block(0, -1, -1).copy(input(0), output(rank * chunks), chunks);
    for (int step = 1; step < ranks; ++step) {
      BlockBuilder block = program.block(0, (rank + step) % ranks, (rank + ranks - step) % ranks);
      block.step({.operation = Operation::put,
                  .source = input(0),
                  .destination = output(rank * chunks),
                  .count = 2});
      block.step({.operation = Operation::put,
                  .source = input(2),
                  .destination = output(rank * chunks + 2)});
      block.step({.operation = Operation::signal});
      block.step({.operation = Operation::wait});
    }
    out.programs.push_back(program.take());
  }
  return proved(std::move(out));
}

// Rank i sums chunk i in its scratch by reading the inputs of all, and puts the sum everywhere,
// once all of its thread blocks have met.
Plan read_all_reduce(int ranks, Protocol protocol) {
  Plan out = begin(Collective::all_reduce, ranks, ranks, protocol);
  for (int rank = 0; rank < ranks; ++rank) {
    ProgramBuilder program(rank);
    program.need_scratch(1);
    BlockBuilder sum = program.block(0, -1, -1);
    sum.copy(input(rank), scratch(rank));
    std::vector<int> peers;
    for (int step = 1; step < ranks; ++step) peers.push_back((rank + step) % ranks);
    sum.step({.operation = Operation::read_reduce,
              .source = input(rank),
              .destination = scratch(rank),
              .peers = peers});
    sum.copy(scratch(rank), output(rank));
    sum.step({.operation = Operation::barrier});
    for (const int peer : peers) {
      BlockBuilder block = program.block(0, peer, peer);
      block.step({.operation = Operation::barrier});
      block.step(
          {.operation = Operation::put, .source = scratch(rank), .destination = output(rank)});
      block.step({.operation = Operation::signal});
      block.step({.operation = Operation::wait});
    }
    out.programs.push_back(program.take());
  }
  return proved(std::move(out));
}

// Chunks pass through one place of rank 1's scratch, which says when it can be used again; and
// rank 2 only has to be there to be read.
Plan relay(Protocol protocol) {
  constexpr int chunks = 6;
  Plan out = begin(Collective::reduce, 3, chunks, protocol);
  out.header.root = 1;
  for (int rank = 0; rank < 3; ++rank) {
    ProgramBuilder program(rank);
    if (rank == 1) program.need_scratch(1);
    if (rank < 2) {
      BlockBuilder block = program.block(0, 1 - rank, 1 - rank);
      if (rank == 1) {
        block.copy(input(0), output(0), chunks);
        block.step({.operation = Operation::read_reduce,
                    .source = input(0),
                    .destination = output(0),
                    .count = chunks,
                    .peers = {2}});
      }
      for (int chunk = 0; chunk < chunks; ++chunk) {
        if (rank == 0) {
          block.step(
              {.operation = Operation::put, .source = input(chunk), .destination = scratch(chunk)});
          block.step({.operation = Operation::signal});
          block.step({.operation = Operation::wait});
        } else {
          block.step({.operation = Operation::wait});
          block.reduce(scratch(chunk), output(chunk));
          block.step({.operation = Operation::signal});
        }
      }
    }
    out.programs.push_back(program.take());
  }
  return proved(std::move(out));
}

transport::FifoOptions small_slots() {
  transport::FifoOptions options;
  options.slots = 2;
  options.simple_slot_bytes = 1024;
  options.ll_slot_bytes = 4096;
  options.ll128_slot_bytes = 4096;  // its payload takes several slots of the notices' connection
  options.zero_copy = true;
  options.zero_copy_min_bytes = 512;
  return options;
}

class OneSided : public testing::TestWithParam<EngineCluster::Memory> {
 protected:
  // Several calls of each plan, of one shape and of others.
  void run(const Plan& made, DataType type, ReduceOperation operation, std::int64_t count) {
    static std::uint64_t seed = 1;
    const plan::Header& header = made.header;
    EngineCluster cluster(header.ranks, small_slots(), GetParam());
    EngineCluster::Run one;
    one.problem = Problem{header.collective, header.ranks, header.root, count, operation, {}};
    one.request.in_place = header.in_place;
    one.type = type;
    one.seed = seed += 100;
    one.calls = 5;
    one.plan = &made;
    EXPECT_EQ(cluster.run(one), "")
        << name(header.collective) << " of " << count << " " << name(type) << ", "
        << name(operation) << ", " << name(header.protocol) << ", " << header.ranks << " ranks";
  }
};

constexpr Protocol protocols[] = {Protocol::simple, Protocol::ll, Protocol::ll128};

TEST_P(OneSided, PutsArriveBeforeTheirToken) {
  for (const Protocol protocol : protocols)
    for (const int ranks : {2, 3, 5})
      for (const bool in_place : {false, true})
        for (const std::int64_t count : {0, 1, 2, 700, test::is_sanitized ? 2'000 : 20'001})
          run(put_all_gather(ranks, protocol, in_place), DataType::int32, ReduceOperation::sum,
              count);
}

TEST_P(OneSided, ReadsAddWhatPeersBrought) {
  for (const Protocol protocol : protocols)
    for (const int ranks : {2, 4})
      for (const DataType type : {DataType::int32, DataType::bfloat16, DataType::float64})
        for (const ReduceOperation operation :
             {ReduceOperation::sum, ReduceOperation::average, ReduceOperation::pre_multiplied_sum})
          for (const std::int64_t count : {1, 50, test::is_sanitized ? 1'000 : 9'001})
            run(read_all_reduce(ranks, protocol), type, operation, count);
}

TEST_P(OneSided, MemoryIsUsedAgainAfterItsOwnersToken) {
  for (const Protocol protocol : protocols)
    for (const std::int64_t count : {1, 17, 600, 8'000})
      for (const ReduceOperation operation :
           {ReduceOperation::sum, ReduceOperation::pre_multiplied_sum})
        run(relay(protocol), DataType::int64, operation, count);
}

INSTANTIATE_TEST_SUITE_P(Memory, OneSided,
                         testing::Values(EngineCluster::Memory::mapped,
                                         EngineCluster::Memory::put_in_place,
                                         EngineCluster::Memory::put_only),
                         [](const auto& one) -> std::string {
                           if (one.param == EngineCluster::Memory::mapped) return "Mapped";
                           const bool in_place = one.param == EngineCluster::Memory::put_in_place;
                           return in_place ? "PutInPlace" : "PutOnly";
                         });

TEST(OneSidedPlan, PartnersAreThoseWhoseMemoryIsTouched) {
  const auto partners = plan::partners(relay(Protocol::simple));
  EXPECT_EQ(partners, (std::vector<std::vector<int>>{{1}, {0, 2}, {1}}));
}

// A rank alone waits for the others to begin, and says so.
TEST(OneSidedPlan, WaitsForThePeersToBegin) {
  const Plan made = put_all_gather(2, Protocol::simple, false);
  EngineCluster cluster(2, small_slots());
  std::vector<std::int32_t> in(10), out(20);
  const auto waiting = cluster.waiting_alone(made, 0,
                                             {.input = in.data(),
                                              .output = out.data(),
                                              .count = 10,
                                              .type = DataType::int32,
                                              .pre_multiplier = {}});
  EXPECT_EQ(waiting.kind, engine::Waiting::Kind::entry);
  EXPECT_EQ(waiting.peer, 1);
}

}  // namespace
}  // namespace unisono
