// Which process this is, and whether another one is still there.
#pragma once

#include <unisono/result.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

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

// Watches another process of this machine. All watches of one process share one descriptor: a rank
// has as many connections to another one as they have groups.
class ProcessWatch {
 public:
  ProcessWatch() = default;
  explicit ProcessWatch(const ProcessIdentity& identity);

  // False once it has ended, also while its parent has not waited for it. A process in another
  // namespace cannot be watched and counts as alive, and so does one of which nothing can be
  // learned because this process can open no more files. One system call.
  bool alive() const;
  // The place of the first of several watches whose process has ended. One system call for all of
  // those that are watched by a descriptor.
  static std::optional<std::size_t> first_ended(std::span<const ProcessWatch> watches);

 private:
  class Descriptor;
  static std::shared_ptr<const Descriptor> descriptor_of(const ProcessIdentity& identity);

  ProcessIdentity identity_;
  std::shared_ptr<const Descriptor> pidfd_;  // null: none could be opened
  bool watched_ = false;
  bool dead_at_start_ = false;
};

}  // namespace unisono::sys
