// A thread block's steps for one shape of call: unrolled, with their places worked out.
//
// Calls of a small size come again and again with the same count and type; what is left to add is
// the address of each buffer.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/host/memory.h"
#include "plan/plan.h"

namespace unisono::engine {

class PlacedSteps {
 public:
  struct Step {
    const plan::Step* step;
    std::size_t bytes;
    std::ptrdiff_t source;  // from the start of the step's buffer
    std::ptrdiff_t destination;
    std::uint32_t first_dependency;
    std::uint32_t dependencies_end;
  };
  struct Dependency {
    std::size_t thread_block;
    std::size_t steps;
  };

  // Places the steps of a call of one tile. False, and nothing is kept, if a step's memory is in
  // several pieces or there are more than `max_steps`.
  bool place(const plan::Body& body, const CallMemory& memory, std::size_t max_steps);
  void clear();

  std::size_t size() const { return steps_.size(); }
  const Step& operator[](std::size_t i) const { return steps_[i]; }
  const Dependency& dependency(std::size_t i) const { return dependencies_[i]; }
  std::size_t memory_bytes() const;

 private:
  std::vector<Step> steps_;
  std::vector<Dependency> dependencies_;
};

}  // namespace unisono::engine
