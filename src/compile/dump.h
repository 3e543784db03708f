// A module as text, for people and for tests.
#pragma once

#include <string>

#include "compile/module.h"

namespace unisono::compile {

// The operations; once there are, the instructions with what they need; then thread blocks.
std::string dump(const Module& module);

}  // namespace unisono::compile
