// Errors at PyTorch's edge: the caller's misuse becomes ValueError, all else DistBackendError. A
// group that is in no state for what is asked of it is a RuntimeError, as with PyTorch's backends,
// of which DistBackendError is a kind.
//
// Programs look for words of Gloo's and NCCL's errors in the texts, so ours have them: "Timed out
// waiting" and "timeout", "aborted", and those of reconfigure() and monitoredBarrier.
#pragma once

#include <unisono/result.h>

#include <exception>
#include <sstream>
#include <string>
#include <utility>

namespace unisono::pytorch {

// The exception for an error; `where` begins its text. An exception that a signal handler raised
// in this thread, Ctrl-C as a rule, takes precedence.
std::exception_ptr exception_of(const Error& error, const std::string& where);
[[noreturn]] void raise(const Error& error, const std::string& where);

// A RuntimeError.
[[noreturn]] void refuse_state(const std::string& message);
// A ValueError made of the parts' texts.
[[noreturn]] void refuse(const std::string& message);
template <class... Parts>
[[noreturn]] void refuse_parts(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  refuse(out.str());
}

inline void check(const Status& status, const std::string& where) {
  if (!status.ok()) raise(status.error(), where);
}
template <class T>
T take(Result<T> result, const std::string& where) {
  if (!result.ok()) raise(result.error(), where);
  return std::move(*result);
}

}  // namespace unisono::pytorch
