#include "sys/host.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "base/str.h"

namespace unisono::sys {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data())
                                                        : std::string("unknown");
}

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat shared{};
  // Containers on one host may have a /dev/shm each: a mount of its own has its own device number.
  const bool has_shared = stat("/dev/shm", &shared) == 0;
  return str(host_name(), "/", boot, "/", has_shared ? shared.st_dev : 0, ".",
             has_shared ? shared.st_ino : 0);
}

}  // namespace unisono::sys
