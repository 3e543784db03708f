#include "errors.h"

#include <mutex>

namespace unisono::nccl {
namespace {

// Never destroyed: a detached thread may fail while the process ends.
struct Latest {
  std::mutex mutex;
  std::string message;
};
Latest& latest() {
  static auto& only = *new Latest;
  return only;
}

}  // namespace

ncclResult_t fail(ncclResult_t code, std::string message) {
  const std::lock_guard lock(latest().mutex);
  latest().message = std::move(message);
  return code;
}

ncclResult_t code_of(const Error& error) {
  if (error.aborted) return error.peer >= 0 ? ncclRemoteError : ncclInvalidUsage;
  switch (error.kind) {
    case ErrorKind::misuse:
      return ncclInvalidArgument;
    case ErrorKind::bug:
      return ncclInternalError;
    case ErrorKind::environment:
      return ncclSystemError;
    case ErrorKind::peer:
      return ncclRemoteError;
  }
  return ncclInternalError;
}

ncclResult_t fail(const Error& error) { return fail(code_of(error), error.describe()); }

ncclResult_t fail_of_device(const Error& error) {
  if (error.kind != ErrorKind::environment) return fail(error);
  return fail(ncclUnhandledCudaError, error.describe());
}

const char* last_error() {
  thread_local std::string copy;
  const std::lock_guard lock(latest().mutex);
  copy = latest().message;
  return copy.c_str();
}

}  // namespace unisono::nccl
