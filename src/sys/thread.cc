#include "sys/thread.h"

#include <sys/resource.h>

#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace unisono::sys {
namespace {

std::string limit_text(__rlimit_resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return str(limit.rlim_cur);
}

}  // namespace

Result<std::thread> start_thread(std::string_view what, std::function<void()> run) {
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& refused) {
    return environment_error("cannot start a thread that ", what, ": ", refused.code().message(),
                             "; this user may have ", limit_text(RLIMIT_NPROC),
                             " processes and threads (ulimit -u), this process ",
                             limit_text(RLIMIT_AS),
                             " bytes of addresses (ulimit -v), and a container may have fewer "
                             "(pids.max)");
  }
}

}  // namespace unisono::sys
