// Aggregation: moves between the same two ranks whose sources follow each other, and whose
// destinations do, become one.
//
// Assumes: operations in an order that respects what they need.
// Establishes: the same, in the order of their depth: an operation's depth is one more than the
// greatest of those it needs. Operations of one depth need nothing of each other, so joining them
// never makes a circle. No move has more chunks than the target takes in a step. A program with
// one-sided steps says itself what goes together, and stays as it is.
//
// A program whose order is to be kept stays as it is.
//
// The α-β model: n messages joined save (n - 1) α, and who uses the first of n chunks of S bytes
// waits for (n - 1) S β more. They are joined if α >= S β, or if nobody sends the data on.
#include <algorithm>
#include <vector>

#include "compile/passes.h"

namespace unisono::compile {
namespace {

struct Depths {
  std::vector<std::int32_t> of;  // by operation
  std::vector<bool> is_sent_on;  // by operation: another rank gets what it moved
  std::int32_t most = 0;
};

Depths depths_of(const Module& module) {
  struct Cell {
    std::int32_t written = 0;  // the least depth of who reads it, or writes it
    std::int32_t read = 0;     // the least depth of who writes it
    std::int32_t writer = none;
  };
  std::vector<Cell> cells(at(module.layout.cells()));
  Depths depths;
  depths.of.reserve(module.operations.size());
  depths.is_sent_on.resize(module.operations.size());
  for (const Operation& it : module.operations) {
    const bool leaves = it.source_rank != it.destination_rank;
    std::int32_t depth = 0;
    for (std::int32_t i = 0; i < it.count; ++i) {
      const Cell& from = cells[at(it.source + i)];
      const Cell& to = cells[at(it.destination + i)];
      depth = std::max({depth, from.written, to.written, to.read});
      if (leaves && from.writer != none) depths.is_sent_on[at(from.writer)] = true;
    }
    for (std::int32_t i = 0; i < it.count; ++i) {
      Cell& from = cells[at(it.source + i)];
      from.read = std::max(from.read, depth + 1);
      cells[at(it.destination + i)] = {depth + 1, 0, static_cast<std::int32_t>(depths.of.size())};
    }
    depths.of.push_back(depth);
    depths.most = std::max(depths.most, depth);
  }
  return depths;
}

bool same_way(const Operation& a, const Operation& b) {
  return a.source_rank == b.source_rank && a.destination_rank == b.destination_rank &&
         a.channel == b.channel && a.kind == b.kind && a.source_block == b.source_block &&
         a.destination_block == b.destination_block;
}

// Moves of more chunks than the target takes in a step become several, of nearly equal size.
void divide(std::vector<Operation>& operations, std::int32_t most) {
  std::vector<Operation> out;
  out.reserve(operations.size());
  for (const Operation& whole : operations) {
    const std::int32_t parts = (whole.count + most - 1) / most;
    Operation part = whole;
    for (std::int32_t i = 0; i < parts; ++i) {
      const std::int32_t first = whole.count * i / parts;
      part.source = whole.source + first;
      part.destination = whole.destination + first;
      part.count = whole.count * (i + 1) / parts - first;
      out.push_back(part);
    }
  }
  operations = std::move(out);
}

}  // namespace

Status aggregate(Module& module) {
  if (module.trace->has_one_sided()) return {};
  const std::int32_t most = most_step_chunks(module);
  const auto is_large = [&](const Operation& it) { return it.count > most; };
  if (module.options.target != nullptr && std::ranges::any_of(module.operations, is_large))
    divide(module.operations, most);
  if (module.options.keep_order) return {};
  const Depths depths = depths_of(module);
  std::vector<std::int32_t> first(at(depths.most) + 2);
  for (const std::int32_t depth : depths.of) ++first[at(depth) + 1];
  for (std::size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
  std::vector<std::int32_t> order(module.operations.size());
  {
    std::vector<std::int32_t> next(first.begin(), first.end() - 1);
    for (std::size_t i = 0; i < depths.of.size(); ++i)
      order[at(next[at(depths.of[i])]++)] = static_cast<std::int32_t>(i);
  }

  const double chunk_bytes =
      static_cast<double>(module.options.block_bytes) / module.header.chunks_per_block;
  const double chunk_us = chunk_bytes / (module.options.gigabytes_per_second * 1e3);
  const bool always = module.options.alpha_us >= chunk_us;
  // With one rank alone, buffers lie side by side.
  const bool none_at_all = module.header.ranks == 1;
  std::vector<Operation> joined;
  joined.reserve(module.operations.size());
  std::vector<std::int32_t> seen(at(module.header.ranks), none);  // by sender: the last depth
  for (std::int32_t depth = 0; depth <= depths.most; ++depth) {
    const auto begin = order.begin() + first[at(depth)];
    const auto end = order.begin() + first[at(depth) + 1];
    // A rank that sends once at this depth has nothing to join: most programs' rule.
    bool repeats = false;
    for (auto i = begin; i != end && !repeats; ++i) {
      std::int32_t& last = seen[at(module.operations[at(*i)].source_rank)];
      repeats = last == depth;
      last = depth;
    }
    if (repeats)
      std::stable_sort(begin, end, [&](std::int32_t a, std::int32_t b) {
        const Operation& left = module.operations[at(a)];
        const Operation& right = module.operations[at(b)];
        if (left.source_rank != right.source_rank) return left.source_rank < right.source_rank;
        if (left.destination_rank != right.destination_rank)
          return left.destination_rank < right.destination_rank;
        if (left.channel != right.channel) return left.channel < right.channel;
        return left.source < right.source;
      });
    bool may_join = false;
    for (auto i = begin; i != end; ++i) {
      const Operation& it = module.operations[at(*i)];
      const bool free = !none_at_all && (always || !depths.is_sent_on[at(*i)]);
      Operation* last = may_join && free ? &joined.back() : nullptr;
      if (last != nullptr && same_way(*last, it) && last->source + last->count == it.source &&
          last->destination + last->count == it.destination && last->count + it.count <= most)
        last->count += it.count;
      else
        joined.push_back(it);
      may_join = free;
    }
  }
  module.operations = std::move(joined);
  return {};
}

}  // namespace unisono::compile
