// What is behind an ncclWindow_t.
#pragma once

#include <unisono/window.h>

#include <optional>

#include "communicator.h"

namespace unisono::nccl {

// Nothing, with the error's text kept, if it is no window of `comm`, or of any where that is null.
std::optional<Window> find_window(const char* function, ncclWindow_t window, ncclComm_t comm);

}  // namespace unisono::nccl
