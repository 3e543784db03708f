// Kernels by name, for the emulated driver.
#pragma once

#include <functional>
#include <map>
#include <string_view>

namespace unisono::emulated {

// What each thread does.
using Call = std::function<void()>;

// With the parameters of a launch, which are copied.
const std::map<std::string_view, Call (*)(void** parameters)>& kernels();

}  // namespace unisono::emulated
