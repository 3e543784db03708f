#include "simulate/body_hash.h"

#include <algorithm>
#include <array>

#include "simulate/hash.h"

namespace unisono::simulate {
namespace {

// The loops around a step: how often each runs, outermost first; 1 where there is none.
using LoopCounts = std::array<std::int64_t, plan::max_loop_depth>;

// An index that goes further is taken to change.
constexpr std::int64_t most_values = 1 << 20;

// Which of a block's chunks an index is, whatever the loops' values; -1 where that depends on them.
std::int64_t chunk_of_block(const plan::Index& index, const LoopCounts& loops,
                            std::int64_t chunks_per_block) {
  const auto of_block = [&](std::int64_t chunk) {
    chunk %= chunks_per_block;
    return chunk < 0 ? chunk + chunks_per_block : chunk;
  };
  const auto is_whole = [&](std::int64_t chunks) { return chunks % chunks_per_block == 0; };
  const std::int64_t chunk = of_block(index.at({}));
  bool stays = is_whole(index.modulus * index.scale);
  for (const std::int64_t coefficient : index.coefficient)
    stays = stays && is_whole(coefficient * index.scale);
  if (stays || is_whole(index.scale) || index.is_constant()) return chunk;
  // A modulus that is no whole number of blocks may never come into play.
  if (loops[0] > most_values / std::max<std::int64_t>(loops[1], 1)) return -1;
  plan::LoopValues at{};
  for (at[0] = 0; at[0] < loops[0]; ++at[0])
    for (at[1] = 0; at[1] < loops[1]; ++at[1])
      if (of_block(index.at(at)) != chunk) return -1;
  return chunk;
}

void add_index(Hash& hash, const plan::Index& index, const LoopCounts& loops) {
  hash.add(index.base).add(index.modulus).add(index.scale).add(index.offset);
  for (std::size_t depth = 0; depth < loops.size(); ++depth)
    if (index.coefficient[depth] != 0) hash.add(index.coefficient[depth]).add(loops[depth]);
}

// A hash of the chunks whose sizes are a step's bytes (StepSizes): alike where the step is as
// large, tile for tile.
void add_chunks(Hash& hash, const plan::Step& step, const LoopCounts& loops,
                const ChunkSizes& chunks) {
  const plan::Index& index =
      (plan::writes_destination(step.operation) ? step.destination : step.source).index;
  const std::int64_t chunk = chunk_of_block(index, loops, chunks.per_block);
  const bool is_equal = chunk >= 0 && chunk + step.count <= chunks.equal;
  hash.add(is_equal ? chunks.per_block : chunk);
  if (chunk < 0) add_index(hash, index, loops);
}

std::uint64_t hash_of(const plan::Step& step, const LoopCounts& loops, const ChunkSizes& chunks) {
  Hash hash;
  hash.add(static_cast<int>(step.operation)).add(step.count);
  add_chunks(hash, step, loops, chunks);
  hash.add(std::uint64_t{step.peers.size()}).add(std::uint64_t{step.after.size()});
  for (const plan::Dependency& dependency : step.after) {
    hash.add(dependency.thread_block);
    add_index(hash, dependency.steps, loops);
  }
  return hash.get();
}

// The hash of a sequence of steps: a polynomial over the integers modulo 2^61 - 1, so that a
// loop's is that of its unrolled steps, at the cost of a few products. Which loops a plan has
// depends on what its chunks' numbers let be written as one.
class SequenceHash {
 public:
  SequenceHash() = default;
  void add_step(std::uint64_t step) { append({reduced(step), base}); }
  void append(const SequenceHash& other) {
    value_ = sum(product(value_, other.power_), other.value_);
    power_ = product(power_, other.power_);
  }
  SequenceHash repeated(std::int64_t times) const {
    SequenceHash result, doubled = *this;
    for (; times > 0; times >>= 1) {
      if ((times & 1) != 0) result.append(doubled);
      doubled.append(doubled);
    }
    return result;
  }
  std::uint64_t get() const { return value_ ^ (power_ << 3); }

 private:
  static constexpr std::uint64_t prime = (std::uint64_t{1} << 61) - 1;
  static constexpr std::uint64_t base = 0x1e3779b97f4a7c15 & prime;

  SequenceHash(std::uint64_t value, std::uint64_t power) : value_(value), power_(power) {}

  static std::uint64_t reduced(std::uint64_t x) {
    x = (x & prime) + (x >> 61);
    return x >= prime ? x - prime : x;
  }
  static std::uint64_t sum(std::uint64_t x, std::uint64_t y) { return reduced(x + y); }
  static std::uint64_t product(std::uint64_t x, std::uint64_t y) {
    __extension__ using Wide = unsigned __int128;
    const Wide wide = static_cast<Wide>(x) * y;
    return sum(static_cast<std::uint64_t>(wide) & prime, static_cast<std::uint64_t>(wide >> 61));
  }

  std::uint64_t value_ = 0;
  std::uint64_t power_ = 1;  // base to the number of steps
};

SequenceHash hash_of(const plan::Body& body, LoopCounts loops, std::size_t depth,
                     const ChunkSizes& chunks) {
  SequenceHash hash;
  for (const plan::Node& node : body) {
    if (const auto* step = std::get_if<plan::Step>(&node)) {
      hash.add_step(hash_of(*step, loops, chunks));
      continue;
    }
    const plan::Loop& loop = std::get<plan::Loop>(node);
    loops[depth] = loop.count;
    hash.append(hash_of(loop.body, loops, depth + 1, chunks).repeated(loop.count));
    loops[depth] = 1;
  }
  return hash;
}

}  // namespace

std::uint64_t body_hash(const plan::Body& body, const ChunkSizes& chunks) {
  LoopCounts loops;
  loops.fill(1);
  return hash_of(body, loops, 0, chunks).get();
}

}  // namespace unisono::simulate
