// Which machine this is.
#pragma once

#include <string>

namespace unisono::sys {

// The same for two processes exactly if they can share memory: one boot of one kernel, one
// /dev/shm.
std::string host_identity();
std::string host_name();

}  // namespace unisono::sys
