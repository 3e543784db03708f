#include "plan/sample_plans.h"

#include "plan/builder.h"

namespace unisono::test {

using namespace plan;

Plan ring() {
  constexpr int ranks = 4;
  Plan plan;
  plan.header.name = "ring_all_reduce";
  plan.header.collective = Collective::all_reduce;
  plan.header.ranks = ranks;
  plan.header.chunks_per_block = ranks;
  set_blocks(plan.header);
  for (int rank = 0; rank < ranks; ++rank) {
    ProgramBuilder builder(rank);
    BlockBuilder block = builder.block(0, (rank + 1) % ranks, (rank + ranks - 1) % ranks);
    const int last = (rank + 1) % ranks;
    block.send(input(rank));
    block.loop(ranks - 2);
    block.recv_reduce_send(input(affine(rank + ranks - 1, -1, ranks)));
    block.end_loop();
    block.recv_reduce_copy_send(input(last), output(last));
    block.loop(ranks - 2);
    block.recv_copy_send(output(affine(rank, -1, ranks)));
    block.end_loop();
    block.recv(output((rank + 2) % ranks));
    plan.programs.push_back(builder.take());
  }
  return plan;
}

Plan nested() {
  constexpr int ranks = 3;
  Plan plan;
  plan.header.name = "nested";
  plan.header.collective = Collective::custom;
  plan.header.ranks = ranks;
  plan.header.protocol = Protocol::ll128;
  plan.header.channels = 2;
  plan.header.in_place = true;
  plan.header.chunks_per_block = 6;
  plan.header.input_blocks = 4;
  plan.header.output_blocks = 4;
  plan.header.min_bytes = 1024;
  plan.header.max_bytes = 65536;
  for (int rank = 0; rank < ranks; ++rank) {
    ProgramBuilder builder(rank);
    builder.need_scratch(2);
    BlockBuilder sender = builder.block(0, (rank + 1) % ranks, -1);
    BlockBuilder receiver = builder.block(1, -1, (rank + 2) % ranks);
    sender.loop(3);
    sender.loop(2);
    Index tile = affine(rank, 2, 6, 2, 12);
    tile.coefficient[1] = -1;
    sender.copy_send(input(tile), scratch(affine(0, 3)), 2);
    sender.end_loop();
    sender.end_loop();
    sender.after(receiver.index(), 1).copy(output(23), scratch(0));
    receiver.recv(output(0), 4);
    receiver.loop(3);
    receiver.after(sender.index(), affine(2, 2)).reduce(scratch(affine(5, -2)), output(0));
    receiver.end_loop();
    plan.programs.push_back(builder.take());
  }
  plan.header.max_step_count = 4;
  return plan;
}

Plan one_sided() {
  Plan plan;
  plan.header.name = "one_sided";
  plan.header.collective = Collective::all_reduce;
  plan.header.ranks = 2;
  plan.header.chunks_per_block = 2;
  set_blocks(plan.header);
  for (int rank = 0; rank < 2; ++rank) {
    const int peer = 1 - rank;
    ProgramBuilder builder(rank);
    builder.need_scratch(1);
    BlockBuilder block = builder.block(0, peer, peer);
    BlockBuilder helper = builder.block(0, -1, -1);
    block.copy(input(rank), output(rank));
    block.step({.operation = Operation::signal});
    block.step({.operation = Operation::wait});
    block.step({.operation = Operation::read_reduce,
                .source = input(rank),
                .destination = output(rank),
                .peers = {peer}});
    block.step({.operation = Operation::put, .source = output(rank), .destination = scratch(rank)});
    block.step({.operation = Operation::signal});
    block.step({.operation = Operation::wait});
    block.step({.operation = Operation::barrier});
    helper.step({.operation = Operation::barrier});
    helper.copy(scratch(peer), output(peer));
    plan.programs.push_back(builder.take());
  }
  return plan;
}

std::vector<Plan> sample_plans() { return {ring(), nested(), one_sided()}; }

}  // namespace unisono::test
