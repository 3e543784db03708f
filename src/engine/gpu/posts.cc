#include "engine/gpu/posts.h"

#include <algorithm>
#include <map>
#include <utility>

namespace unisono::engine::gpu {
namespace {

using plan::Buffer;
using plan::Storage;

// Looking at every step for every message takes the product; larger programs go without.
constexpr std::size_t most_steps = 4096;

struct Place {
  std::size_t block;
  std::uint32_t step;  // in its block
};

// Steps of a block from `first` on come after a given step, whatever the thread blocks' pace.
class After {
 public:
  After(const LoweredProgram& program, Place of) : program_(program) {
    for (const device::Block& block : program.blocks) first_.push_back(block.steps);
    first_[of.block] = of.step;
    while (spread()) continue;
    ++first_[of.block];  // the step itself does not
  }
  bool has(Place place) const { return place.step >= first_[place.block]; }

 private:
  // Whether a step was found that waits for one that is known.
  bool spread() {
    bool found = false;
    for (std::size_t b = 0; b < first_.size(); ++b) {
      const device::Block& block = program_.blocks[b];
      for (std::uint32_t i = 0; i < first_[b]; ++i) {
        if (!waits(program_.steps[block.first_step + i])) continue;
        first_[b] = i;
        found = true;
      }
    }
    return found;
  }
  bool waits(const device::Step& step) const {
    for (std::uint32_t i = 0; i < step.dependencies; ++i) {
      const device::Dependency& wanted = program_.dependencies[step.first_dependency + i];
      const auto last = static_cast<std::uint32_t>(wanted.steps - 1);
      if (last >= first_[static_cast<std::size_t>(wanted.block)]) return true;
    }
    return false;
  }

  const LoweredProgram& program_;
  std::vector<std::uint32_t> first_;
};

class Marking {
 public:
  Marking(const plan::Header& header, int rank, LoweredProgram& program)
      : header_(header), rank_(rank), program_(program) {}

  void run() {
    for (device::Block& block : program_.blocks) number(block);
    if (program_.steps.size() <= most_steps) find_touches();
    for (std::size_t b = 0; b < program_.blocks.size(); ++b)
      for (std::uint32_t i = 0; i < program_.blocks[b].steps; ++i) {
        device::Step& step = program_.steps[program_.blocks[b].first_step + i];
        if (step.in_post == 0) continue;
        if (program_.steps.size() > most_steps || !may_come_early(step, {b, i})) step.in_post = 0;
        program_.has_posts |= step.in_post != 0;
      }
  }

 private:
  static void number(device::Step& step, std::uint32_t message, std::uint8_t& post) {
    if (step.count == 1 && message <= device::max_posts) post = static_cast<std::uint8_t>(message);
  }
  void number(device::Block& block) {
    for (std::uint32_t i = 0; i < block.steps; ++i) {
      device::Step& step = program_.steps[block.first_step + i];
      if ((step.flags & device::gives_message) != 0) number(step, ++block.sends, step.out_post);
      if ((step.flags & device::takes_message) != 0) number(step, ++block.receives, step.in_post);
    }
  }

  void touch(std::uint8_t buffer, std::int32_t first, int count, Place place) {
    for (int i = 0; i < count; ++i) {
      const Storage at = storage_of(header_, rank_, static_cast<Buffer>(buffer), first + i);
      touches_[{at.buffer, at.chunk}].push_back(place);
    }
  }
  void find_touches() {
    for (std::size_t b = 0; b < program_.blocks.size(); ++b)
      for (std::uint32_t i = 0; i < program_.blocks[b].steps; ++i) {
        const device::Step& step = program_.steps[program_.blocks[b].first_step + i];
        if ((step.flags & device::takes_source) != 0)
          touch(step.source_buffer, step.source, step.count, {b, i});
        if ((step.flags & device::gives_destination) != 0)
          touch(step.destination_buffer, step.destination, step.count, {b, i});
      }
  }

  // The message alone makes the destination, in the output, and whatever else touches that comes
  // later.
  bool may_come_early(const device::Step& step, Place place) const {
    if ((step.flags & (device::takes_source | device::takes_destination)) != 0 ||
        (step.flags & device::gives_destination) == 0 ||
        step.destination_buffer != static_cast<std::uint8_t>(Buffer::output))
      return false;
    const Storage at = storage_of(header_, rank_, Buffer::output, step.destination);
    const After after(program_, place);
    return std::ranges::all_of(touches_.at({at.buffer, at.chunk}), [&](const Place& other) {
      return (other.block == place.block && other.step == place.step) || after.has(other);
    });
  }

  const plan::Header& header_;
  int rank_;
  LoweredProgram& program_;
  std::map<std::pair<Buffer, std::int64_t>, std::vector<Place>> touches_;
};

}  // namespace

void mark_posts(const plan::Header& header, int rank, LoweredProgram& program) {
  Marking(header, rank, program).run();
}

}  // namespace unisono::engine::gpu
