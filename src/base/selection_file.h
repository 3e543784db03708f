// The file of UNISONO_SELECTION_FILE, which every rank reads as it starts.
#pragma once

#include <string>

#include <unisono/result.h>

#include "base/settings.h"

namespace unisono {

// Its text; the caller's misuse where it cannot be read, is no regular file or too large. The
// setting must name one.
Result<std::string> read_selection_file(const Settings& settings);

}  // namespace unisono
