// Small plans, right ones, that tests spoil on purpose.
#pragma once

#include "plan/builder.h"
#include "plan/plan.h"

namespace unisono::test {

plan::Header header(Collective collective, int ranks, int chunks_per_block = 1,
                    bool in_place = false);

// Ring, one thread block a rank, `loops` instead of unrolled steps.
plan::Plan ring_all_reduce(int ranks, bool in_place, bool loops);
plan::Plan ring_all_gather(int ranks, bool in_place);
// All ranks read from all, reduce in the order of ranks; one thread block a peer.
plan::Plan all_pairs_all_reduce(int ranks);
// One thread block for each peer in each direction.
plan::Plan direct_all_to_all(int ranks, Collective collective = Collective::all_to_all);
plan::Plan chain_broadcast(int ranks, int chunks, int root);
plan::Plan dissemination_barrier(int ranks);
// Rank 0 puts its input into the output of rank 1, signals, and waits for the answer.
plan::Plan put_broadcast();

plan::Step& step_of(plan::Plan& plan, int rank, int thread_block, int step);

}  // namespace unisono::test
