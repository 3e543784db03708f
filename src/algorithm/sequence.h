// Writing many like steps in few loops.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "algorithm/group.h"
#include "plan/builder.h"

namespace unisono::algorithm {

// Appends body(chunk) for each of `chunks` in turn, all in 0 .. modulus-1, with loops wherever
// they are arithmetic progressions modulo `modulus`, or progressions of such. What `body` appends
// may depend on the index alone.
void for_each_chunk(plan::BlockBuilder& block, const std::vector<std::int64_t>& chunks,
                    std::int64_t modulus, const std::function<void(plan::Index)>& body);

// Two places of one step: a source and a destination of equal size, each in one buffer.
struct Move {
  Run from;
  Run to;
};

// The same for steps on `moves`.
void for_each_move(plan::BlockBuilder& block, std::span<const Move> moves,
                   const std::function<void(plan::Location, plan::Location, int count)>& body);
// The same for steps on one place each.
void for_each_run(plan::BlockBuilder& block, std::span<const Run> runs,
                  const std::function<void(plan::Location, int count)>& body);

}  // namespace unisono::algorithm
