// What tests of wrong plans share: plans to spoil, and expectations on failures.
#pragma once

#include <gtest/gtest.h>

#include "plan/plan.h"
#include "verify/verify.h"

namespace unisono::test {

// The first failure of a plan that must have one.
verify::Failure failure_of(const plan::Plan& plan, const verify::Options& options = {});

// Every rank sends its input to the next, which copies it to the output: no collective at all, but
// the shortest plan in which two ranks exchange something.
plan::Plan exchange(Collective collective, int chunks = 1, bool in_place = false);

// The last rank's contribution goes down to rank 0, and every rank adds its own.
plan::Plan reduce_chain(int ranks);

}  // namespace unisono::test

#define EXPECT_CONTAINS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "'" << (text) << "' lacks '" << (part) << "'"

#define EXPECT_PLACE(failure, its_problem, its_rank, its_block, its_step, its_buffer, its_chunk) \
  EXPECT_EQ(name((failure).problem), name(its_problem)) << (failure).describe();                 \
  EXPECT_EQ((failure).rank, its_rank) << (failure).describe();                                   \
  EXPECT_EQ((failure).thread_block, its_block) << (failure).describe();                          \
  EXPECT_EQ((failure).step, its_step) << (failure).describe();                                   \
  EXPECT_EQ((failure).buffer, its_buffer) << (failure).describe();                               \
  EXPECT_EQ((failure).chunk, its_chunk) << (failure).describe()
