// Which messages of a program may go directly to their destination in the receiver's output.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace unisono::engine {

// Of one thread block.
struct DirectMessages {
  // For each message that it receives in a tile: the first chunk of its destination, if the memory
  // there may be written from the beginning of the call; else -1.
  std::vector<std::int32_t> destinations;
  // For each of its unrolled steps: the number, from 0, of the message that it sends in a tile; -1:
  // none that can go directly.
  std::vector<std::int32_t> sent;
};

// By thread block; empty for programs that are too long to be looked at.
std::vector<DirectMessages> direct_messages(const plan::Header& header,
                                            const plan::RankProgram& program);

}  // namespace unisono::engine
