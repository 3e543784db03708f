// Which process this is, and whether another one is still there.
#pragma once

#include <unisono/result.h>

#include <cstdint>

namespace unisono::sys {

// Names one life of a process: a process id alone is used again, and means nothing in another
// namespace.
struct ProcessIdentity {
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;     // clock ticks after boot
  std::uint64_t pid_namespace = 0;  // inode of /proc/self/ns/pid, 0 when it cannot be read
  bool operator==(const ProcessIdentity&) const = default;
};

// Read once; a process that can then open no more files still knows it.
ProcessIdentity this_process();

// A copy of a descriptor that another process of this user has open. Environment error where the
// kernel refuses (Linux before 5.6; Yama, unless that process allowed it).
Result<int> copy_descriptor(const ProcessIdentity& process, int descriptor);

// Watches another process of this machine.
class ProcessWatch {
 public:
  ProcessWatch() = default;
  explicit ProcessWatch(const ProcessIdentity& identity);
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;
  ProcessWatch(ProcessWatch&& other) noexcept { swap(other); }
  ProcessWatch& operator=(ProcessWatch&& other) noexcept {
    swap(other);
    return *this;
  }

  // False once it has ended, also while its parent has not waited for it. A process in another
  // namespace cannot be watched and counts as alive, and so does one of which nothing can be
  // learned because this process can open no more files. One system call.
  bool alive() const;

 private:
  void swap(ProcessWatch& other);

  ProcessIdentity identity_;
  int pidfd_ = -1;
  bool watched_ = false;
  bool dead_at_start_ = false;
};

}  // namespace unisono::sys
