// Strings from parts, without iostreams and without <format> (absent from g++ 12).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace unisono {

void append(std::string& out, std::string_view part);
void append(std::string& out, char part);
void append(std::string& out, bool part);
void append(std::string& out, long long part);
void append(std::string& out, unsigned long long part);
void append(std::string& out, double part);  // shortest form that reads back the same

inline void append(std::string& out, const char* part) { append(out, std::string_view(part)); }
inline void append(std::string& out, const std::string& part) {
  append(out, std::string_view(part));
}

template <std::integral T>
  requires(!std::same_as<T, bool> && !std::same_as<T, char>)
void append(std::string& out, T part) {
  if constexpr (std::is_signed_v<T>)
    append(out, static_cast<long long>(part));
  else
    append(out, static_cast<unsigned long long>(part));
}

inline void append(std::string& out, float part) { append(out, static_cast<double>(part)); }

// "3 of 8 ranks": str(3, " of ", 8, " ranks").
template <class... Parts>
std::string str(const Parts&... parts) {
  std::string out;
  (append(out, parts), ...);
  return out;
}

// "1, 2, 3".
template <class Range>
std::string join(const Range& parts, std::string_view separator = ", ") {
  std::string out;
  bool first = true;
  for (const auto& part : parts) {
    if (!first) append(out, separator);
    append(out, part);
    first = false;
  }
  return out;
}

// "2f" of 47: no leading zeros.
std::string hex(std::uint64_t value);
// Two digits a byte.
std::string hex(std::span<const std::byte> bytes);

// The candidates nearest to a mistyped name, each once, best first, at most `most`.
std::vector<std::string> near_names(std::string_view name,
                                    const std::vector<std::string>& candidates, int most = 3);
// How the message about an unknown name ends: "; did you mean ring or tree?", or where none of the
// known names is near, "; there are ring, tree".
std::string name_hint(std::string_view name, const std::vector<std::string>& known);

}  // namespace unisono
