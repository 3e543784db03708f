#pragma once

#include <string>

namespace unisono::test {

/// The folder of this checkout's sources.
std::string source_folder();

/// The folder that the tests were built in.
std::string build_folder();

}  // namespace unisono::test
