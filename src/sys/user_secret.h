// A secret that all processes of one user on one host share, and nobody else can read.
#pragma once

#include <unisono/result.h>

#include <string>
#include <string_view>

namespace unisono::sys {

// Makes the directory, closed to all others, where it is not there. Afterwards it must belong to
// this user and be closed to all others, else it is an environment error.
Status make_private_directory(const std::string& path);

// The content of <directory>/secret; made by the first to ask. The directory, made where needed,
// and the file must belong to this user and be closed to all others, else it is an environment
// error.
Result<std::string> user_secret(const std::string& directory);
// "/tmp/unisono-<user id>"; where that is another user's, "/run/user/<user id>/unisono" if there is
// such a folder. The same for all processes of a user.
std::string user_directory();

// 32 bytes from the kernel's random numbers, as 64 hexadecimal digits.
Result<std::string> random_secret();

}  // namespace unisono::sys
