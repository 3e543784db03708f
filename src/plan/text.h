// The text form of a plan: what a person reads, writes and compares. docs/reference/plan.md has the
// grammar.
//
// For every plan that check() accepts, parse(print(plan)) is that plan.
#pragma once

#include <unisono/result.h>

#include <string>
#include <string_view>

#include "plan/plan.h"

namespace unisono::plan {

// A longer text is refused, and so is one with more steps and loops (before unrolling). Together
// the two limits keep a hostile plan's memory near 1 GB.
struct TextLimits {
  std::size_t max_bytes = std::size_t{64} << 20;
  std::int64_t max_steps = std::int64_t{4} << 20;
};

std::string print(const Plan& plan);
// The header and one rank's program only.
std::string print(const Header& header, const RankProgram& program);

// "(3 - i) mod 4", "input[3 - i]", "recv_reduce_copy  input[1] -> output[1]  after 1:5".
std::string print(const Index& index);
std::string print(const Location& location);
std::string print(const Step& step);

// Misuse with line, column, what was expected and what was found. A plan that reads well is
// checked against format_limits().
Result<Plan> parse(std::string_view text, const TextLimits& limits = {});

}  // namespace unisono::plan
