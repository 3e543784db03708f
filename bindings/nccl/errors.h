// Result codes, and the texts that go with them.
#pragma once

#include <unisono/result.h>

#include <sstream>
#include <string>

#include "abi.h"

namespace unisono::nccl {

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

// Keeps the text for ncclGetLastError and returns the code.
ncclResult_t fail(ncclResult_t code, std::string message);
// The same for an error of the library below.
ncclResult_t fail(const Error& error);
// For errors of calls to the driver, whatever their kind.
ncclResult_t fail_of_device(const Error& error);
ncclResult_t code_of(const Error& error);

// The latest error of this process; valid on this thread until it asks again.
const char* last_error();

}  // namespace unisono::nccl
