#include "fabric/demands.h"

#include <rdma/fi_domain.h>

#include <array>
#include <charconv>

namespace unisono::test::fabric {
namespace {

struct Flag {
  std::string_view name;
  bool Demands::* flag;
};
constexpr std::array flags{Flag{"local", &Demands::is_local},
                           Flag{"endpoint", &Demands::is_endpoint},
                           Flag{"virtual", &Demands::is_virtual},
                           Flag{"unordered", &Demands::is_unordered},
                           Flag{"late", &Demands::is_late},
                           Flag{"busy", &Demands::is_busy},
                           Flag{"full", &Demands::is_full},
                           Flag{"anonymous", &Demands::is_anonymous},
                           Flag{"no_data", &Demands::has_no_data},
                           Flag{"no_message_data", &Demands::refuses_message_data},
                           Flag{"refused_data", &Demands::refuses_data},
                           Flag{"lost_data", &Demands::loses_data}};

struct Number {
  std::string_view name;
  std::size_t Demands::* number;
};
constexpr std::array numbers{
    Number{"keys", &Demands::key_bytes}, Number{"queue", &Demands::most_completions},
    Number{"messages", &Demands::most_message_bytes}, Number{"writes", &Demands::most_write_bytes},
    Number{"seed", &Demands::seed}};

bool take(std::string_view word, Demands& out) {
  for (const Flag& each : flags) {
    if (word != each.name) continue;
    out.*each.flag = true;
    return true;
  }
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view value = word.substr(equals + 1);
  for (const Number& each : numbers) {
    if (word.substr(0, equals) != each.name) continue;
    const char* end = value.data() + value.size();
    const auto [stop, code] = std::from_chars(value.data(), end, out.*each.number);
    return code == std::errc{} && stop == end;
  }
  return false;
}

}  // namespace

int Demands::mr_mode() const {
  return (is_local ? FI_MR_LOCAL : 0) | (is_endpoint ? FI_MR_ENDPOINT : 0) |
         (is_virtual ? FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY : 0);
}

std::optional<Demands> parse(std::string_view name) {
  const std::size_t semicolon = name.find(';');
  if (semicolon == std::string_view::npos || name.substr(semicolon + 1) != provider_name)
    return std::nullopt;
  std::string_view words = name.substr(0, semicolon);
  Demands out;
  while (!words.empty()) {
    const std::size_t plus = words.find('+');
    if (!take(words.substr(0, plus), out)) return std::nullopt;
    if (plus == std::string_view::npos) break;
    words = words.substr(plus + 1);
    if (words.empty()) return std::nullopt;
  }
  const bool has_wide_keys = out.key_bytes == 8;
  if (!has_wide_keys && (out.is_virtual || (out.key_bytes != 2 && out.key_bytes != 4)))
    return std::nullopt;
  return out;
}

}  // namespace unisono::test::fabric
