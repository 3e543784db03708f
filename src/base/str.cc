#include "base/str.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <tuple>

namespace unisono {
namespace {

template <class T>
void append_number(std::string& out, T part) {
  char digits[40];
  const auto end = std::to_chars(digits, digits + sizeof digits, part);
  out.append(digits, end.ptr);
}

// Levenshtein's distance, one row at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

}  // namespace

void append(std::string& out, std::string_view part) { out.append(part); }
void append(std::string& out, char part) { out.push_back(part); }
void append(std::string& out, bool part) { out.append(part ? "true" : "false"); }
void append(std::string& out, long long part) { append_number(out, part); }
void append(std::string& out, unsigned long long part) { append_number(out, part); }
void append(std::string& out, double part) { append_number(out, part); }

std::string hex(std::uint64_t value) {
  char digits[16];
  return {digits, std::to_chars(digits, digits + sizeof digits, value, 16).ptr};
}

std::string hex(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte byte : bytes) {
    const auto value = std::to_integer<std::uint64_t>(byte);
    out += hex(value >> 4) + hex(value & 15);
  }
  return out;
}

std::vector<std::string> near_names(std::string_view name,
                                    const std::vector<std::string>& candidates, int most) {
  if (name.empty()) return {};
  // Names that contain the other one are nearest; among equals the one with fewer changes is first.
  std::vector<std::tuple<std::size_t, std::size_t, std::string>> ranked;
  for (const std::string& candidate : candidates) {
    const bool contains = candidate.find(name) != std::string::npos;
    const std::size_t changes = edit_distance(name, candidate);
    const std::size_t distance = contains ? 0 : changes;
    // Farther than half of the word is another word.
    if (distance <= 1 + candidate.size() / 2) ranked.emplace_back(distance, changes, candidate);
  }
  std::sort(ranked.begin(), ranked.end());
  ranked.erase(std::unique(ranked.begin(), ranked.end()), ranked.end());
  std::vector<std::string> out;
  for (const auto& [distance, changes, candidate] : ranked) {
    if (static_cast<int>(out.size()) == most) break;
    out.push_back(candidate);
  }
  return out;
}

std::string name_hint(std::string_view name, const std::vector<std::string>& known) {
  const std::vector<std::string> near = near_names(name, known);
  if (!near.empty()) return str("; did you mean ", join(near, " or "), "?");
  return known.empty() ? "; there are none" : str("; there are ", join(known));
}

}  // namespace unisono
