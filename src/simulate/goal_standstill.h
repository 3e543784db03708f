// Who waits for whom in a GOAL schedule, when nothing can happen any more.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <vector>

#include "simulate/goal.h"

namespace unisono::simulate::goal {

enum class State : std::uint8_t { waits, begun, ended };
using States = std::vector<std::vector<State>>;  // by rank and operation

// Ok if everything has ended; otherwise misuse that shows a cycle, or what can never come.
Status check_progress(const Schedule& schedule, const States& progress);

}  // namespace unisono::simulate::goal
