#include "engine/host/placed_steps.h"

#include "plan/walk.h"

namespace unisono::engine {

void PlacedSteps::clear() {
  steps_.clear();
  dependencies_.clear();
}

bool PlacedSteps::place(const plan::Body& body, const CallMemory& memory, std::size_t max_steps) {
  clear();
  std::vector<Extent> extents;
  for (plan::StepCursor cursor(body); cursor.step() != nullptr; cursor.advance()) {
    const plan::Step& step = *cursor.step();
    Step placed{.step = &step};
    const auto place_one = [&](const plan::Location& location, std::ptrdiff_t& offset) {
      placed.bytes = memory.extents(location.buffer, location.index.at(cursor.loops()), step.count,
                                    0, extents);
      if (!extents.empty()) offset = extents[0].data - memory.base(location.buffer);
      return extents.size() <= 1;
    };
    bool in_one_piece = steps_.size() < max_steps;
    if (plan::reads_source(step.operation)) in_one_piece &= place_one(step.source, placed.source);
    if (plan::writes_destination(step.operation))
      in_one_piece &= place_one(step.destination, placed.destination);
    if (!in_one_piece) {
      clear();
      return false;
    }
    placed.first_dependency = static_cast<std::uint32_t>(dependencies_.size());
    for (const plan::Dependency& dependency : step.after)
      dependencies_.push_back({static_cast<std::size_t>(dependency.thread_block),
                               static_cast<std::size_t>(dependency.steps.at(cursor.loops()))});
    placed.dependencies_end = static_cast<std::uint32_t>(dependencies_.size());
    steps_.push_back(placed);
  }
  return true;
}

std::size_t PlacedSteps::memory_bytes() const {
  return steps_.capacity() * sizeof(Step) + dependencies_.capacity() * sizeof(Dependency);
}

}  // namespace unisono::engine
