#include "sys/shared_memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/try.h"
#include "base/units.h"

namespace unisono::sys {
namespace {

constexpr int most_attempts = 1000;  // 1 ms apart

Status check_owner(int fd, const std::string& name) {
  struct stat status{};
  if (fstat(fd, &status) != 0) return system_error(str("fstat of shared memory ", name), errno);
  if (status.st_uid != geteuid() || (status.st_mode & 077) != 0)
    return environment_error("shared memory ", name, " belongs to user ", status.st_uid,
                             " with mode ", status.st_mode & 0777, ", not to user ", geteuid(),
                             " alone; another user created it under this name, so remove it");
  return {};
}

// The call may be interrupted by signals, and then begins anew.
template <class Allocate>
int until_uninterrupted(const Allocate& allocate) {
  constexpr int attempts = 100;
  int failed = EINTR;
  for (int attempt = 0; failed == EINTR && attempt < attempts; ++attempt) failed = allocate();
  return failed;
}

Error no_space(int descriptor, std::size_t bytes, std::size_t all_bytes) {
  struct statvfs filesystem{};
  const bool known = fstatvfs(descriptor, &filesystem) == 0 && filesystem.f_blocks != 0;
  const std::uint64_t free = std::uint64_t{filesystem.f_bavail} * filesystem.f_frsize;
  const std::uint64_t total = std::uint64_t{filesystem.f_blocks} * filesystem.f_frsize;
  return environment_error(
      "/dev/shm is full: ", format_bytes(bytes), " of shared memory are needed now, up to ",
      format_bytes(all_bytes), " in all, but ",
      known ? str(format_bytes(free), " of ", format_bytes(total), " are free")
            : "it has no space left",
      known && free < bytes ? str(", ", format_bytes(bytes - free), " too few") : "",
      "; enlarge it (docker run --shm-size=1g), remove files of other programs there, or set "
      "UNISONO_TRANSPORT=socket on every rank");
}

Status take(int descriptor, std::size_t offset, std::size_t bytes, std::size_t all_bytes) {
  if (bytes == 0) return {};
  // Whole pages, but nothing behind the end: that would make the object longer.
  const std::size_t begin = offset / page_bytes() * page_bytes();
  const std::size_t pages = (offset + bytes - begin + page_bytes() - 1) / page_bytes();
  const std::size_t length = std::min(pages * page_bytes(), all_bytes - begin);
  const int failed = until_uninterrupted([&] {
    const bool taken =
        fallocate(descriptor, 0, static_cast<off_t>(begin), static_cast<off_t>(length)) == 0;
    return taken ? 0 : errno;
  });
  // A filesystem that cannot promise memory gives it as it is touched.
  if (failed == 0 || failed == EOPNOTSUPP) return {};
  if (failed == ENOSPC) return no_space(descriptor, length, all_bytes);
  return system_error(str("taking ", format_bytes(bytes), " of shared memory"), failed);
}

// Taking the last page makes the file long enough and, unlike ftruncate, never makes it shorter,
// whatever another process does at the same time.
Status grow(int descriptor, const std::string& name, std::size_t bytes) {
  struct stat status{};
  if (fstat(descriptor, &status) == 0 && static_cast<std::size_t>(status.st_size) >= bytes)
    return {};
  const int failed = until_uninterrupted(
      [&] { return posix_fallocate(descriptor, static_cast<off_t>(bytes - 1), 1); });
  if (failed == ENOSPC) return no_space(descriptor, page_bytes(), bytes);
  if (failed != 0)
    return system_error(str("growing shared memory ", name, " to ", format_bytes(bytes)), failed);
  return {};
}

Result<std::byte*> map(int fd, const std::string& name, std::size_t bytes, std::size_t head_bytes) {
  UNISONO_TRY(check_owner(fd, name));
  UNISONO_TRY(grow(fd, name, bytes));
  UNISONO_TRY(take(fd, 0, head_bytes, bytes));
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED)
    return system_error(str("mapping ", format_bytes(bytes), " of shared memory ", name), errno);
  return static_cast<std::byte*>(data);
}

}  // namespace

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::size_t resident_bytes(const std::byte* data, std::size_t bytes) {
  std::array<unsigned char, 1024> pages;
  const std::size_t window = pages.size() * page_bytes();
  std::size_t resident = 0;
  for (std::size_t at = 0; at < bytes; at += window) {
    const std::size_t length = std::min(window, bytes - at);
    if (mincore(const_cast<std::byte*>(data) + at, length, pages.data()) != 0) return bytes;
    const std::size_t count = (length + page_bytes() - 1) / page_bytes();
    for (std::size_t i = 0; i < count; ++i) resident += (pages[i] & 1) * page_bytes();
  }
  return resident;
}

Result<SharedMemory> SharedMemory::open(const std::string& name, std::size_t bytes,
                                        std::size_t head_bytes) {
  const int fd = shm_open(name.c_str(), O_CREAT | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return system_error(str("opening shared memory ", name), errno);
  return adopt(fd, name, bytes, head_bytes);
}

Result<SharedMemory> SharedMemory::open_for_handshake(const std::string& name, std::size_t bytes,
                                                      std::size_t head_bytes) {
  // Once in each process, a forked child too.
  static std::atomic<pid_t> swept_by{0};
  if (const pid_t own = getpid(); swept_by.exchange(own) != own) remove_ended_handshakes();
  for (int attempt = 0; attempt < most_attempts; ++attempt) {
    const int fd = shm_open(name.c_str(), O_CREAT | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return system_error(str("opening shared memory ", name), errno);
    // The kernel releases the lock, however the process ends. A sweeper, which holds it for a
    // moment, may have removed the name before it was locked here.
    struct stat status{};
    if (flock(fd, LOCK_SH | LOCK_NB) == 0 && fstat(fd, &status) == 0 && status.st_nlink > 0)
      return adopt(fd, name, bytes, head_bytes);
    close(fd);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return environment_error("shared memory ", name, " is locked by another process for ",
                           most_attempts, " ms");
}

void SharedMemory::remove_ended_handshakes() {
  for (const std::string& name : names(std::string(handshake_prefix.substr(1)))) {
    const int fd = shm_open(name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0);
    if (fd < 0) continue;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) unlink(name);
    close(fd);
  }
}

Result<SharedMemory> SharedMemory::adopt(int fd, const std::string& name, std::size_t bytes,
                                         std::size_t head_bytes) {
  struct stat status{};
  const bool is_new = fstat(fd, &status) == 0 && status.st_size == 0;
  auto data = map(fd, name, bytes, head_bytes);
  if (data.ok()) return SharedMemory(fd, *data, bytes);
  // What was created only to find that it cannot be had must not stay behind.
  if (is_new && status.st_uid == geteuid()) unlink(name);
  close(fd);
  return data.take_error();
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

SharedMemory::~SharedMemory() {
  if (data_ == nullptr) return;
  munmap(data_, bytes_);
  close(descriptor_);
}

Status SharedMemory::reserve(std::size_t offset, std::size_t bytes) const {
  return take(descriptor_, offset, bytes, bytes_);
}

void SharedMemory::unlink(const std::string& name) { shm_unlink(name.c_str()); }

std::vector<std::string> SharedMemory::names(const std::string& prefix) {
  std::vector<std::string> found;
  // Where shm_open keeps them (shm_overview(7)).
  DIR* directory = opendir("/dev/shm");
  if (directory == nullptr) return found;
  while (const dirent* entry = readdir(directory)) {
    struct stat status{};
    if (std::string_view(entry->d_name).starts_with(prefix) &&
        fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        status.st_uid == geteuid() && S_ISREG(status.st_mode))
      found.push_back(str("/", entry->d_name));
  }
  closedir(directory);
  return found;
}

bool SharedMemory::peek(const std::string& name, std::span<std::byte> bytes) {
  const int fd = shm_open(name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0);
  if (fd < 0) return false;
  const ssize_t got = pread(fd, bytes.data(), bytes.size(), 0);
  close(fd);
  return got == static_cast<ssize_t>(bytes.size());
}

Result<PrivateMemory> PrivateMemory::allocate(std::size_t bytes) {
  const std::size_t mapped = std::max<std::size_t>(bytes, 1);
  void* data = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return system_error(str("reserving ", format_bytes(bytes)), errno);
  madvise(data, mapped, MADV_NOHUGEPAGE);
  return PrivateMemory(static_cast<std::byte*>(data), mapped);
}

PrivateMemory::PrivateMemory(PrivateMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

PrivateMemory::~PrivateMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace unisono::sys
