#include "simulate/body_hash.h"

#include <gtest/gtest.h>

#include "plan/builder.h"

namespace unisono::simulate {
namespace {

plan::Step receive(plan::Index chunk) {
  return {.operation = plan::Operation::recv, .destination = plan::output(chunk)};
}

// What `write` writes, of blocks with so many chunks.
template <class Write>
std::uint64_t hash_of(const Write& write, const ChunkSizes& chunks = {}) {
  plan::ProgramBuilder program(0);
  plan::BlockBuilder block = program.block(0, -1, 1);
  write(block);
  return body_hash(program.take().thread_blocks[0].body, chunks);
}

TEST(BodyHash, IsTheSameHoweverLoopsAreWritten) {
  const auto unrolled = hash_of([](plan::BlockBuilder& block) {
    for (int i = 0; i < 3; ++i) {
      block.recv(plan::output(0));
      block.send(plan::output(0));
      block.send(plan::output(0));
    }
  });
  const auto loops = hash_of([](plan::BlockBuilder& block) {
    block.loop(2);
    block.recv(plan::output(7));
    block.loop(2);
    block.send(plan::output(plan::affine(3, 5)));
    block.end_loop();
    block.end_loop();
    block.recv(plan::output(1));
    block.send(plan::output(2));
    block.send(plan::output(3));
  });
  EXPECT_EQ(loops, unrolled);
}

TEST(BodyHash, TellsOrderNumberAndOperationApart) {
  const auto once = hash_of([](plan::BlockBuilder& block) {
    block.recv(plan::output(0));
    block.send(plan::output(0));
  });
  EXPECT_NE(once, hash_of([](plan::BlockBuilder& block) {
              block.send(plan::output(0));
              block.recv(plan::output(0));
            }));
  EXPECT_NE(once, hash_of([](plan::BlockBuilder& block) {
              block.loop(2);
              block.recv(plan::output(0));
              block.send(plan::output(0));
              block.end_loop();
            }));
  EXPECT_NE(once, hash_of([](plan::BlockBuilder& block) {
              block.recv(plan::output(0), 2);
              block.send(plan::output(0));
            }));
  EXPECT_NE(once, hash_of([](plan::BlockBuilder& block) {
              block.recv(plan::output(0));
              block.after(3, 1).send(plan::output(0));
            }));
}

// Of two chunks in a block the first may be larger.
TEST(BodyHash, TellsPlacesInABlockApart) {
  const auto at = [](plan::Index chunk) {
    return hash_of([&](plan::BlockBuilder& block) { block.step(receive(chunk)); }, {2, 1});
  };
  EXPECT_EQ(at(4), at(0));
  EXPECT_NE(at(5), at(0));
}

// Of five chunks in a block the first three are equally large.
TEST(BodyHash, TakesChunksOfOneSizeAsEqual) {
  const auto at = [](plan::Index chunk, int count) {
    return hash_of(
        [&](plan::BlockBuilder& block) {
          plan::Step step = receive(chunk);
          step.count = count;
          block.step(step);
        },
        {5, 3});
  };
  EXPECT_EQ(at(0, 1), at(2, 1));
  EXPECT_EQ(at(0, 2), at(6, 2));
  EXPECT_NE(at(2, 1), at(3, 1));
  EXPECT_NE(at(3, 1), at(4, 1));
  EXPECT_NE(at(1, 2), at(2, 2));
  EXPECT_NE(at(0, 1), at(0, 2));
}

// A modulus that is no whole number of blocks matters where an index goes beyond it, and only
// there.
TEST(BodyHash, FollowsAnIndexThroughItsLoop) {
  const auto loop = [](std::int64_t count, std::int64_t modulus) {
    return hash_of(
        [&](plan::BlockBuilder& block) {
          block.loop(count);
          block.step(receive(plan::affine(0, 2, modulus)));
          block.end_loop();
        },
        {2, 1});
  };
  EXPECT_EQ(loop(3, 5), loop(3, 6));
  EXPECT_NE(loop(4, 5), loop(4, 6));
}

// The loops' lengths count where steps that are waited for depend on them.
TEST(BodyHash, KeepsDependenciesThatChange) {
  const auto nest = [](std::int64_t outer, std::int64_t inner) {
    return hash_of([&](plan::BlockBuilder& block) {
      block.loop(outer);
      block.loop(inner);
      block.after(1, plan::affine(1, 1)).recv(plan::output(0));
      block.end_loop();
      block.end_loop();
    });
  };
  EXPECT_EQ(nest(2, 3), nest(2, 3));
  EXPECT_NE(nest(2, 3), nest(3, 2));
}

}  // namespace
}  // namespace unisono::simulate
