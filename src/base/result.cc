#include <unisono/result.h>

#include <sys/resource.h>

#include <cerrno>
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

const char* name(FailureReason reason) {
  switch (reason) {
    case FailureReason::unknown:
      return "unknown";
    case FailureReason::gone:
      return "gone";
    case FailureReason::left:
      return "left";
    case FailureReason::no_answer:
      return "no answer";
    case FailureReason::not_in_call:
      return "not in call";
    case FailureReason::waits:
      return "waits";
    case FailureReason::mismatch:
      return "mismatch";
    case FailureReason::link:
      return "link";
    case FailureReason::device:
      return "device";
    case FailureReason::aborted:
      return "aborted";
    case FailureReason::refused:
      return "refused";
  }
  return "unknown";
}

std::string Error::describe() const {
  std::string out = aborted ? "aborted" : timed_out ? "timeout" : name(kind);
  if (peer >= 0) out += str(" (rank ", peer, ")");
  return out + ": " + message;
}

namespace {

// What a limit of the process or the machine that was reached has to do with the error.
std::string limit_behind(int error_number) {
  rlimit limit{};
  if (error_number == ENFILE)
    return "; the whole machine has as many files open as it may (sysctl fs.file-max)";
  if (error_number == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
    return str("; this process has open all of the ", limit.rlim_cur,
               " files and connections that it may have (ulimit -n, hard limit ", limit.rlim_max,
               "); raise the limit, or close files");
  if (error_number == ENOMEM && getrlimit(RLIMIT_AS, &limit) == 0 &&
      limit.rlim_cur != RLIM_INFINITY)
    return str("; this process may have ", limit.rlim_cur, " bytes of addresses (ulimit -v)");
  return {};
}

}  // namespace

Error system_error(std::string_view what, int error_number) {
  char text[128];
  // The GNU strerror_r returns its text; it may or may not use the buffer.
  Error error = environment_error(what, ": ", strerror_r(error_number, text, sizeof text),
                                  limit_behind(error_number));
  if (error_number == ECONNREFUSED) error.reason = FailureReason::refused;
  return error;
}

}  // namespace unisono
