#include "base/units.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace unisono {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array<Unit, 12> byte_units{{{"", 1},
                                           {"b", 1},
                                           {"k", 1024},
                                           {"kb", 1e3},
                                           {"kib", 1024},
                                           {"m", 1048576},
                                           {"mb", 1e6},
                                           {"mib", 1048576},
                                           {"g", 1073741824},
                                           {"gb", 1e9},
                                           {"gib", 1073741824},
                                           {"tib", 1099511627776.0}}};

constexpr std::array<Unit, 6> time_units{
    {{"", 1e9}, {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 60e9}}};

template <std::size_t N>
Result<double> parse_with_units(std::string_view text, const std::array<Unit, N>& units,
                                std::string_view what) {
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string suffix(end, text.data() + text.size());
  std::erase(suffix, ' ');
  for (char& c : suffix) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool is_number = status == std::errc{} && std::isfinite(number) && number >= 0;
  if (is_number)
    for (const Unit& unit : units)
      if (unit.name == suffix && number * unit.factor < 9e18) return number * unit.factor;
  return misuse("cannot read '", text, "' as a ", what);
}

std::string format_scaled(double value, std::string_view unit) {
  std::string out = str(std::round(value * 100) / 100, " ");
  out.append(unit);
  return out;
}

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view text) {
  auto bytes = parse_with_units(text, byte_units, "size such as 64KiB, 4MiB or 1GB");
  if (!bytes.ok()) return bytes.take_error();
  return static_cast<std::uint64_t>(std::llround(*bytes));
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> names{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < names.size()) {
    value /= 1024;
    ++unit;
  }
  return format_scaled(value, names[unit]);
}

Result<std::int64_t> parse_duration_ns(std::string_view text) {
  auto duration = parse_with_units(text, time_units, "duration such as 200us, 5ms or 30s");
  if (!duration.ok()) return duration.take_error();
  return static_cast<std::int64_t>(std::llround(*duration));
}

std::string format_duration_ns(std::int64_t duration_ns) {
  const double value = static_cast<double>(duration_ns);
  if (value < 1e3) return format_scaled(value, "ns");
  if (value < 1e6) return format_scaled(value / 1e3, "us");
  if (value < 1e9) return format_scaled(value / 1e6, "ms");
  return format_scaled(value / 1e9, "s");
}

}  // namespace unisono
