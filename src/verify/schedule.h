// When each step of a plan runs, in logical time: for drawings and for counting rounds.
//
// A step takes 1 and a message takes 1. A step starts as soon as the step before it in its thread
// block has ended, what it waits for (`after`) has ended, its message has arrived, and a slot is
// free.
#pragma once

#include <unisono/result.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace unisono::verify {

// Larger plans are refused: nobody can look at them.
inline constexpr std::int64_t max_scheduled_steps = std::int64_t{1} << 20;

struct TimedStep {
  int rank = 0;
  int thread_block = 0;
  std::int64_t number = 0;  // unrolled
  plan::Operation operation = plan::Operation::copy;
  std::string text;  // in words: see step_text()
  std::int64_t start = 0;
  std::int64_t end = 0;
};

// A message or token. Sender and receiver are indices into Schedule::steps.
struct Arrow {
  std::size_t sender = 0;
  std::size_t receiver = 0;
  std::int64_t sent = 0;     // the sender's end
  std::int64_t arrived = 0;  // sent + 1
};

struct Schedule {
  std::vector<TimedStep> steps;  // by rank, thread block, number
  std::vector<Arrow> messages;   // by receiving step, in the order of `steps`
  std::int64_t duration = 0;     // the last end
};

// `slots` as in Options. Misuse if plan::check refuses the plan, it is too large, or it does not
// end.
Result<Schedule> make_schedule(const plan::Plan& plan, int slots = 8);

}  // namespace unisono::verify
