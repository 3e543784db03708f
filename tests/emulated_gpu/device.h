// The emulated device's memory and events.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "scheduler.h"

namespace unisono::emulated {

// What another process needs to map an allocation of this one: an IpcHandle's content.
struct SharedAllocation {
  pid_t process;
  int descriptor;
  std::uint64_t offset;  // in the descriptor's memory
  std::uint64_t bytes;
  std::uint64_t address;
};

// Allocations of this process, by address. They lie in one file in memory, so that other processes
// can map them.
class Allocations {
 public:
  struct Allocation {
    std::uint64_t address;
    std::size_t bytes;
    int device;
    std::uint64_t identity;
  };
  // 0: there is no memory.
  std::uint64_t allocate(std::size_t bytes, int device);
  bool free(std::uint64_t address);
  std::optional<Allocation> at(std::uint64_t address) const;
  std::optional<SharedAllocation> share(std::uint64_t address) const;

 private:
  bool make_arena();

  mutable std::mutex mutex_;
  std::map<std::uint64_t, Allocation> all_;
  std::map<std::uint64_t, std::size_t> gaps_;  // bytes, by address
  std::uint64_t next_identity_ = 1;
  std::uint64_t arena_ = 0;
  int descriptor_ = -1;
  pid_t process_ = -1;  // that has made the arena
};
Allocations& allocations();

// Another process's allocations that are mapped here.
class Imports {
 public:
  // 0: it cannot be mapped, or the process is gone.
  std::uint64_t map(const SharedAllocation& shared);
  bool unmap(std::uint64_t address);
  // Of what is mapped at just this address; 0: nothing.
  std::size_t bytes_at(std::uint64_t address);

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::size_t> mapped_;  // bytes, by address
};
Imports& imports();

class Event {
 public:
  // What is recorded now; complete() is for that.
  std::uint64_t record();
  std::uint64_t recorded() const;
  void complete(std::uint64_t number);
  bool is_complete() const;
  bool is_complete(std::uint64_t number) const;
  std::int64_t completed_ns() const;
  // Of the capture in which it was recorded last.
  Graph* capture = nullptr;

 private:
  mutable std::mutex mutex_;
  std::uint64_t recorded_ = 0;
  std::uint64_t completed_ = 0;
  std::int64_t completed_ns_ = 0;
};

}  // namespace unisono::emulated
