#include "verify/wrong_plans.h"

#include "plan/builder.h"
#include "verify/plans.h"

namespace unisono::test {

using plan::BlockBuilder;
using plan::input;
using plan::output;
using plan::Plan;
using plan::ProgramBuilder;

verify::Failure failure_of(const Plan& plan, const verify::Options& options) {
  const verify::Report report = verify::verify(plan, options);
  EXPECT_FALSE(report.ok()) << "the wrong plan passed";
  return report.ok() ? verify::Failure{} : report.failures.front();
}

Plan exchange(Collective collective, int chunks, bool in_place) {
  Plan plan{header(collective, 2, chunks, in_place), {}};
  for (int rank = 0; rank < 2; ++rank) {
    ProgramBuilder program(rank);
    BlockBuilder block = program.block(0, 1 - rank, 1 - rank);
    block.send(input(0));
    block.recv_reduce_copy(input(0), output(0));
    plan.programs.push_back(program.take());
  }
  return plan;
}

Plan reduce_chain(int ranks) {
  Plan plan{header(Collective::reduce, ranks), {}};
  for (int rank = 0; rank < ranks; ++rank) {
    ProgramBuilder program(rank);
    program.need_scratch(1);
    BlockBuilder block = program.block(0, rank - 1, rank < ranks - 1 ? rank + 1 : -1);
    if (rank == ranks - 1)
      block.send(input(0));
    else if (rank > 0)
      block.recv_reduce_send(input(0));
    else
      block.recv_reduce_copy(input(0), output(0));
    plan.programs.push_back(program.take());
  }
  return plan;
}

}  // namespace unisono::test
