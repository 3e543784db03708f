// Memory by the page: named and shared between processes (POSIX), or this process's own.
#pragma once

#include <unisono/result.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::sys {

std::size_t page_bytes();
// Bytes in [data, data + bytes), which starts at a page, for which memory has been taken.
std::size_t resident_bytes(const std::byte* data, std::size_t bytes);

// Names of open_for_handshake() begin so.
inline constexpr std::string_view handshake_prefix = "/unisono-start-";

class SharedMemory {
 public:
  // Opens the object `name` ("/..."), or creates it for this user only, and maps `bytes` of it,
  // zeroed at first. Whoever comes first creates; the object grows to the largest size asked for
  // and never shrinks. Only the first `head_bytes` have memory; the rest is address space.
  static Result<SharedMemory> open(const std::string& name, std::size_t bytes,
                                   std::size_t head_bytes);

  // The same for a name that lives as long as a handshake, "/unisono-start-...": until one of its
  // processes removes it, or until all that hold the object have ended. The first call of a process
  // calls remove_ended_handshakes().
  static Result<SharedMemory> open_for_handshake(const std::string& name, std::size_t bytes,
                                                 std::size_t head_bytes);

  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  // Takes memory for [offset, offset + bytes), which stays as long as the object. To be called
  // before these bytes are loaded or stored: the filesystem behind them may be full by then, and
  // touching a page that cannot be had ends the process (SIGBUS). Cheap where they have memory.
  Status reserve(std::size_t offset, std::size_t bytes) const;
  // Removes such names where no process that holds the object is left.
  static void remove_ended_handshakes();
  // Removes the name; mappings stay.
  static void unlink(const std::string& name);
  // The names ("/...") that begin so, of objects that belong to this user.
  static std::vector<std::string> names(const std::string& prefix);
  // Reads the first bytes of an object; false when it is not there or shorter.
  static bool peek(const std::string& name, std::span<std::byte> bytes);

 private:
  // Closes the descriptor if it fails.
  static Result<SharedMemory> adopt(int descriptor, const std::string& name, std::size_t bytes,
                                    std::size_t head_bytes);
  SharedMemory(int descriptor, std::byte* data, std::size_t bytes)
      : descriptor_(descriptor), data_(data), bytes_(bytes) {}

  int descriptor_ = -1;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Zeroed at first, and taken page by page as it is touched (no huge pages: they would take more).
class PrivateMemory {
 public:
  static Result<PrivateMemory> allocate(std::size_t bytes);

  ~PrivateMemory();
  PrivateMemory(PrivateMemory&& other) noexcept;
  PrivateMemory& operator=(PrivateMemory&&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  PrivateMemory(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace unisono::sys
