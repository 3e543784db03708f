// Which machine this is.
#pragma once

#include <string>

namespace unisono::sys {

// The same for two processes exactly if they can share memory: one boot of one kernel, one
// /dev/shm.
std::string host_identity();
std::string host_name();
// This host's address from which `host` (a name or an address) is reached; empty when that cannot
// be told.
std::string address_towards(const std::string& host);

}  // namespace unisono::sys
