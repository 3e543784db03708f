#include <unisono/result.h>

#include <cstring>

#include "base/error.h"

namespace unisono {

const char* name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::misuse:
      return "misuse";
    case ErrorKind::bug:
      return "bug in unisono";
    case ErrorKind::environment:
      return "environment error";
    case ErrorKind::peer:
      return "peer error";
  }
  return "unknown error";
}

std::string Error::describe() const {
  std::string out = aborted ? "aborted" : timed_out ? "timeout" : name(kind);
  if (peer >= 0) out += str(" (rank ", peer, ")");
  return out + ": " + message;
}

Error system_error(std::string_view what, int error_number) {
  char text[128];
  // The GNU strerror_r returns its text; it may or may not use the buffer.
  return environment_error(what, ": ", strerror_r(error_number, text, sizeof text));
}

}  // namespace unisono
