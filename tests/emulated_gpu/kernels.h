// Kernels by name, for the emulated driver.
#pragma once

#include <map>
#include <string_view>

#include "scheduler.h"

namespace unisono::emulated {

// What a stream does for one launch. The parameters are copied.
using Launcher = Operation (*)(unsigned blocks, unsigned threads, void** parameters);
const std::map<std::string_view, Launcher>& kernels();

}  // namespace unisono::emulated
