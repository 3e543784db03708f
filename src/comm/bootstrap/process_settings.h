// What of unisono/settings.h the control plane needs.
#pragma once

#include <string>

namespace unisono::comm {

// The key that ranks share beside their job's secret, empty if there is none. It does not change
// any more.
std::string use_shared_key();

}  // namespace unisono::comm
