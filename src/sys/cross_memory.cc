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

namespace {

// One call of the kernel's kind: moves up to so many bytes between a place here and one there.
using Move = ssize_t (*)(pid_t, const iovec*, const iovec*);

Status move_all(Move move, std::string_view what, std::int32_t pid, void* here,
                std::uint64_t address, std::size_t bytes) {
  auto* at = static_cast<std::byte*>(here);
  while (bytes > 0) {
    const iovec local{.iov_base = at, .iov_len = bytes};
    const iovec remote{.iov_base = reinterpret_cast<void*>(address), .iov_len = bytes};
    const ssize_t moved = move(pid, &local, &remote);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0)
      return system_error(str(what, " ", bytes, " bytes of process ", pid, "'s memory"),
                          moved < 0 ? errno : EFAULT);
    at += moved;
    address += static_cast<std::uint64_t>(moved);
    bytes -= static_cast<std::size_t>(moved);
  }
  return {};
}

}  // namespace

Status read_process_memory(std::int32_t pid, void* destination, std::uint64_t address,
                           std::size_t bytes) {
  const Move read = [](pid_t process, const iovec* local, const iovec* remote) {
    return process_vm_readv(process, local, 1, remote, 1, 0);
  };
  return move_all(read, "reading", pid, destination, address, bytes);
}

Status write_process_memory(std::int32_t pid, std::uint64_t address, const void* source,
                            std::size_t bytes) {
  const Move write = [](pid_t process, const iovec* local, const iovec* remote) {
    return process_vm_writev(process, local, 1, remote, 1, 0);
  };
  // The kernel only reads what an iovec of this end names.
  return move_all(write, "writing", pid, const_cast<void*>(source), address, bytes);
}

}  // namespace unisono::sys
