#include "sys/cross_memory.h"

#include <sys/prctl.h>
#include <sys/uio.h>

#include <cerrno>

#include "base/error.h"

namespace unisono::sys {

void allow_cross_memory_reads() {
  // Fails where there is no Yama, and then nothing has to be allowed.
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

Status read_process_memory(std::int32_t pid, void* destination, std::uint64_t address,
                           std::size_t bytes) {
  auto* to = static_cast<std::byte*>(destination);
  while (bytes > 0) {
    const iovec local{.iov_base = to, .iov_len = bytes};
    const iovec remote{.iov_base = reinterpret_cast<void*>(address), .iov_len = bytes};
    const ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      return system_error(str("reading ", bytes, " bytes of process ", pid, "'s memory"),
                          got < 0 ? errno : EFAULT);
    to += got;
    address += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
  return {};
}

}  // namespace unisono::sys
