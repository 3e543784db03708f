#include "sys/caches.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/str.h"

namespace unisono::sys {
namespace {

constexpr std::size_t unknown_bytes = std::size_t{1} << 20;

// A file's first word; empty without such a file.
std::string read_word(int level, const char* what) {
  std::ifstream file(str("/sys/devices/system/cpu/cpu0/cache/index", level, "/", what));
  std::string word;
  file >> word;
  return word;
}

// "32768K"; Linux numbers two first-level caches 0 and 1, so that index and level agree from 2 on.
std::size_t bytes_of(int level) {
  return std::strtoull(read_word(level, "size").c_str(), nullptr, 10) << 10;
}

std::size_t bytes_per_processor(int level) {
  const int processors = processors_in_mask(read_word(level, "shared_cpu_map").c_str());
  return bytes_of(level) / static_cast<std::size_t>(std::max(processors, 1));
}

}  // namespace

int processors_in_mask(const char* mask) {
  int processors = 0;
  for (; *mask != '\0'; ++mask) {
    const char digit[] = {*mask, '\0'};
    processors += std::popcount(std::strtoul(digit, nullptr, 16));
  }
  return processors;
}

std::size_t cache_bytes_of_a_core() {
  static const std::size_t bytes = [] {
    const std::size_t found = std::max(bytes_per_processor(2), bytes_per_processor(3));
    return found > 0 ? found : unknown_bytes;
  }();
  return bytes;
}

std::size_t second_level_bytes() {
  static const std::size_t bytes = bytes_of(2);
  return bytes;
}

}  // namespace unisono::sys
