#include "programs.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "base/str.h"
#include "compile/layout.h"

namespace unisono::test {

using compile::Chunk;
using compile::Kind;
using compile::Layout;
using compile::Trace;

namespace {

template <class T>
T value_of(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

Trace start(Collective collective, int ranks, int chunks, bool in_place, int nodes) {
  compile::Program program;
  program.header.name = "program";
  program.header.collective = collective;
  program.header.ranks = ranks;
  program.header.chunks_per_block = chunks;
  program.header.in_place = in_place;
  program.nodes = nodes;
  plan::set_blocks(program.header);
  return value_of(Trace::start(program));
}

}  // namespace

Writer::Writer(Collective collective, int ranks, int chunks, bool in_place, int nodes)
    : trace_(start(collective, ranks, chunks, in_place, nodes)) {}

Chunk Writer::take(int rank, int buffer, std::int64_t index, std::int64_t count) {
  return value_of(trace_.take(rank, buffer, index, count, 0));
}

Chunk Writer::copy(const Chunk& source, int rank, int buffer, std::int64_t index, int channel) {
  const Chunk target = value_of(trace_.place(rank, buffer, index, source.count, 0));
  return value_of(trace_.add(Kind::copy, source, target, channel, 0));
}

Chunk Writer::reduce(const Chunk& into, const Chunk& other, int channel) {
  return value_of(trace_.add(Kind::reduce, other, into, channel, 0));
}

int Writer::scratch(std::int64_t chunks) {
  const int number = trace_.layout().buffers();
  if (!trace_.add_scratch(str("scratch", number), chunks).ok())
    throw std::runtime_error("no scratch");
  return number;
}

Trace ring_all_reduce(int ranks) {
  Writer p(Collective::all_reduce, ranks, ranks, true);
  for (int i = 0; i < ranks; ++i) {
    Chunk c = p.take((i + 1) % ranks, Layout::input, i);
    for (int step = 2; step <= ranks; ++step)
      c = p.reduce(p.take((i + step) % ranks, Layout::input, i), c);
    for (int step = 1; step < ranks; ++step) c = p.copy(c, (i + step) % ranks, Layout::output, i);
  }
  return std::move(p.trace());
}

Trace all_pairs_all_reduce(int ranks, int parallel) {
  Writer p(Collective::all_reduce, ranks, ranks, true);
  EXPECT_TRUE(p.trace().set_parallel(parallel, 0).ok());
  for (int i = 0; i < ranks; ++i) {
    Chunk c = p.take(i, Layout::input, i);
    for (int step = 1; step < ranks; ++step)
      c = p.reduce(c, p.take((i + step) % ranks, Layout::input, i));
    for (int step = 1; step < ranks; ++step) p.copy(c, (i + step) % ranks, Layout::output, i);
  }
  return std::move(p.trace());
}

Trace two_step_all_to_all(int nodes, int size) {
  const int ranks = nodes * size;
  Writer p(Collective::all_to_all, ranks, 1, false, nodes);
  const int parcel = p.scratch(ranks);
  for (int target = 0; target < ranks; ++target) {
    const int node = target / size;
    for (int source = 0; source < ranks; ++source) {
      const Chunk c = p.take(source, Layout::input, target);
      if (source / size == node)
        p.copy(c, target, Layout::output, source);
      else
        p.copy(c, source / size * size + target % size, parcel, node * size + source % size);
    }
    for (int other = 0; other < nodes; ++other) {
      if (other == node) continue;
      const Chunk c = p.take(other * size + target % size, parcel, node * size, size);
      p.copy(c, target, Layout::output, other * size);
    }
  }
  return std::move(p.trace());
}

}  // namespace unisono::test
