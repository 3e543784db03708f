#include "verify/plans.h"

namespace unisono::test {

using plan::affine;
using plan::BlockBuilder;
using plan::input;
using plan::output;
using plan::Plan;
using plan::ProgramBuilder;
using plan::scratch;

plan::Header header(Collective collective, int ranks, int chunks_per_block, bool in_place) {
  plan::Header header;
  header.name = "test";
  header.collective = collective;
  header.ranks = ranks;
  header.chunks_per_block = chunks_per_block;
  header.in_place = in_place;
  plan::set_blocks(header);
  return header;
}

Plan ring_all_reduce(int ranks, bool in_place, bool loops) {
  Plan plan{header(Collective::all_reduce, ranks, ranks, in_place), {}};
  for (int rank = 0; rank < ranks; ++rank) {
    ProgramBuilder program(rank);
    BlockBuilder block = program.block(0, (rank + 1) % ranks, (rank + ranks - 1) % ranks);
    const auto chunk = [&](int steps) { return (rank + 2 * ranks - steps) % ranks; };
    block.send(input(chunk(0)));
    if (loops) {
      block.loop(ranks - 2);
      block.recv_reduce_send(input(affine(rank - 1, -1, ranks)));
      block.end_loop();
    } else {
      for (int i = 1; i < ranks - 1; ++i) block.recv_reduce_send(input(chunk(i)));
    }
    block.recv_reduce_copy_send(input(chunk(ranks - 1)), output(chunk(ranks - 1)));
    if (loops) {
      block.loop(ranks - 2);
      block.recv_copy_send(output(affine(rank, -1, ranks)));
      block.end_loop();
    } else {
      for (int i = 0; i < ranks - 2; ++i) block.recv_copy_send(output(chunk(i)));
    }
    block.recv(output(chunk(ranks - 2)));
    plan.programs.push_back(program.take());
  }
  return plan;
}

Plan ring_all_gather(int ranks, bool in_place) {
  Plan plan{header(Collective::all_gather, ranks, 1, in_place), {}};
  for (int rank = 0; rank < ranks; ++rank) {
    ProgramBuilder program(rank);
    BlockBuilder block = program.block(0, (rank + 1) % ranks, (rank + ranks - 1) % ranks);
    if (in_place)
      block.send(input(0));
    else
      block.copy_send(input(0), output(rank));
    for (int i = 1; i < ranks - 1; ++i) block.recv_copy_send(output((rank + ranks - i) % ranks));
    block.recv(output((rank + 1) % ranks));
    plan.programs.push_back(program.take());
  }
  return plan;
}

Plan all_pairs_all_reduce(int ranks) {
  Plan plan{header(Collective::all_reduce, ranks), {}};
  for (int rank = 0; rank < ranks; ++rank) {
    ProgramBuilder program(rank);
    program.need_scratch(ranks);
    BlockBuilder main = program.block(0, -1, -1);
    main.copy(input(0), scratch(rank));
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      BlockBuilder block = program.block(0, peer, peer);
      block.send(input(0));
      block.recv(scratch(peer));
      main.after(block);
      if (peer == ranks - 1 || (rank == ranks - 1 && peer == ranks - 2)) {
        main.copy(scratch(0), output(0));
        for (int i = 1; i < ranks; ++i) main.reduce(scratch(i), output(0));
      } else {
        main.copy(scratch(rank), output(0));  // only to carry the `after`
      }
    }
    plan.programs.push_back(program.take());
  }
  return plan;
}

Plan direct_all_to_all(int ranks, Collective collective) {
  Plan plan{header(collective, ranks, 2), {}};
  for (int rank = 0; rank < ranks; ++rank) {
    ProgramBuilder program(rank);
    program.block(0, -1, -1).copy(input(2 * rank), output(2 * rank), 2);
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      BlockBuilder block = program.block(0, peer, peer);
      block.send(input(2 * peer), 2);
      block.recv(output(2 * peer), 2);
    }
    plan.programs.push_back(program.take());
  }
  return plan;
}

Plan chain_broadcast(int ranks, int chunks, int root) {
  Plan plan{header(Collective::broadcast, ranks, chunks), {}};
  plan.header.root = root;
  for (int rank = 0; rank < ranks; ++rank) {
    const int place = (rank - root + ranks) % ranks;
    ProgramBuilder program(rank);
    BlockBuilder block = program.block(0, place == ranks - 1 ? -1 : (rank + 1) % ranks,
                                       place == 0 ? -1 : (rank + ranks - 1) % ranks);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      if (place == 0)
        block.copy_send(input(chunk), output(chunk));
      else if (place == ranks - 1)
        block.recv(output(chunk));
      else
        block.recv_copy_send(output(chunk));
    }
    plan.programs.push_back(program.take());
  }
  return plan;
}

Plan dissemination_barrier(int ranks) {
  Plan plan{header(Collective::barrier, ranks), {}};
  for (int rank = 0; rank < ranks; ++rank) {
    ProgramBuilder program(rank);
    program.need_scratch(2);
    int previous = -1;
    for (int distance = 1; distance < ranks; distance *= 2) {
      BlockBuilder block =
          program.block(0, (rank + distance) % ranks, (rank + ranks - distance) % ranks);
      if (previous >= 0) block.after(previous, 2);
      block.send(scratch(0));
      block.recv(scratch(1));
      previous = block.index();
    }
    plan.programs.push_back(program.take());
  }
  return plan;
}

Plan put_broadcast() {
  Plan plan{header(Collective::broadcast, 2), {}};
  ProgramBuilder root(0);
  BlockBuilder source = root.block(0, 1, 1);
  source.copy(input(0), output(0));
  source.step({.operation = plan::Operation::put, .source = input(0), .destination = output(0)});
  source.step({.operation = plan::Operation::signal});
  source.step({.operation = plan::Operation::wait});
  plan.programs.push_back(root.take());
  ProgramBuilder other(1);
  BlockBuilder sink = other.block(0, 0, 0);
  sink.step({.operation = plan::Operation::wait});
  sink.step({.operation = plan::Operation::signal});
  plan.programs.push_back(other.take());
  return plan;
}

plan::Step& step_of(Plan& plan, int rank, int thread_block, int step) {
  auto& body = plan.programs[static_cast<std::size_t>(rank)]
                   .thread_blocks[static_cast<std::size_t>(thread_block)]
                   .body;
  return std::get<plan::Step>(body[static_cast<std::size_t>(step)]);
}

}  // namespace unisono::test
