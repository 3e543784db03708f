// Checks of a call's options, and what a communicator fills in.
#pragma once

#include <unisono/call_options.h>
#include <unisono/result.h>

#include <string_view>

namespace unisono {

// Misuse that names the value, `where` and what would be right.
Status check_options(const CallOptions& options, std::string_view where = {});

// Takes from a communicator's options what `options` leave open. Computation overlaps with the call
// where either says so.
void fill_in(CallOptions& options, const CallOptions& defaults);

}  // namespace unisono
