// Steps in words.
#pragma once

#include <cstdint>
#include <string>

#include "plan/plan.h"

namespace unisono::verify {

// "recv_reduce_send input[3], from rank 1, to rank 2".
std::string step_text(const plan::ThreadBlock& thread_block, const plan::Step& step,
                      const plan::LoopValues& loops);
// The same for an unrolled step number.
std::string step_text(const plan::ThreadBlock& thread_block, std::int64_t number);

}  // namespace unisono::verify
