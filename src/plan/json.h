// The JSON form of a plan: what programs exchange. docs/schema/plan-v1.schema.json describes it.
//
// For every plan that check() accepts, from_json(to_json(plan)) is that plan.
#pragma once

#include <unisono/result.h>

#include <string>
#include <string_view>

#include "plan/plan.h"

namespace unisono::plan {

std::string to_json(const Plan& plan);

// Misuse that names the place, what was expected and what was found. Unknown members and versions
// other than format_version are refused; a plan that reads well is checked against format_limits().
Result<Plan> from_json(std::string_view text);

}  // namespace unisono::plan
