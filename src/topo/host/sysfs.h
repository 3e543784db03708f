// A tree of the kernel's device files (sysfs), read with bounds: nothing in it is trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::topo {

// Paths are relative to the root. Whatever cannot be read is nothing, or empty.
class Sysfs {
 public:
  static constexpr std::size_t most_file_bytes = 4096;
  static constexpr std::size_t most_names = 4096;

  // Any folder; the real one is "/sys".
  explicit Sysfs(const std::string& root);

  bool exists() const { return !root_.empty(); }
  // A file's first line without the space around it; only of regular files.
  std::optional<std::string> line(const std::string& path) const;
  // A file's number, decimal or, after 0x, hexadecimal.
  std::optional<std::int64_t> number(const std::string& path) const;
  // The names in a folder in alphabetical order. Of a folder with more than most_names, some.
  std::vector<std::string> names(const std::string& path) const;
  // Where links lead to, relative to the root; nothing if they leave it or form a loop.
  std::optional<std::string> resolved(const std::string& path) const;

 private:
  std::string root_;  // without links; empty if there is no such folder
};

// Whether a list such as "0-15,64-79" has the number.
bool list_has(std::string_view list, int number);

}  // namespace unisono::topo
