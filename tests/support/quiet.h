// Included by programs whose peers misbehave on purpose: nothing is logged.
#pragma once

#include <cstdlib>

namespace unisono::test {

// Before anything reads the environment.
inline const bool is_quiet = setenv("UNISONO_LOG", "off", 1) == 0;

}  // namespace unisono::test
