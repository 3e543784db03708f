// Calls whose place is not their plan's: in place of a plan that is out of place, or the reverse.
//
// Whether input and output alias is known to one rank alone, so it must not decide which plan runs.
// Where they do not lie as the plan wants them, a copy of the input does.
#pragma once

#include <unisono/types.h>

#include <cstddef>
#include <memory>

#include "engine/engine.h"
#include "plan/plan.h"

namespace unisono::engine {

// The copies that make a rank's buffers lie as its plan wants them.
struct Relocation {
  enum class Way : std::uint8_t {
    none,
    // The plan is out of place: it reads a private copy of the input.
    private_input,
    // The plan is in place: its memory is the caller's output, to which the input is copied.
    in_output,
    // The plan is in place: its memory is private, because the output has no room for all of it.
    // The input is copied there, and the output from there at the end.
    private_memory,
  };
  Way way = Way::none;
  int input_blocks = 0;   // the caller's
  int output_blocks = 0;  // the caller's
  // Where input and output begin in the plan's memory, which has so many blocks.
  int input_at = 0;
  int output_at = 0;
  int memory_blocks = 0;

  // For a rank's calls that are in place or not.
  static Relocation of(const plan::Header& header, int rank, bool in_place);

  bool is_private() const { return way == Way::private_input || way == Way::private_memory; }
  static std::size_t bytes(const Arguments& arguments, int blocks) {
    return static_cast<std::size_t>(arguments.count) * size_bytes(arguments.type) *
           static_cast<std::size_t>(blocks);
  }
};

// Runs `execution`, which is of the host, on relocated buffers: the input is copied when a call
// starts, and must be there by then.
std::unique_ptr<Execution> relocate(std::unique_ptr<Execution> execution,
                                    const Relocation& relocation);

}  // namespace unisono::engine
