// The settings of this process (UNISONO_*), for libraries above.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace unisono {

enum class SettingType : std::uint8_t { text, integer, size_bytes, duration, boolean };

struct ProcessSetting {
  std::string_view variable;  // "UNISONO_TIMEOUT"
  std::string text;           // as it was set, else the default
  bool is_number = false;     // a count, bytes, nanoseconds, or 0 and 1
  std::int64_t number = 0;
};

// Variables and the texts that they would have in the environment, which these values precede.
using SettingValues = std::vector<std::pair<std::string, std::string>>;

// All of this process's but the secret, as its environment had them when they were first read.
std::vector<ProcessSetting> process_settings();

// A variable of the environment that a library above declares for itself, read as those of the type
// above are; unset, it has its default. Misuse names the variable and what would be right.
Result<ProcessSetting> read_setting(std::string_view variable, SettingType type,
                                    std::string_view default_text);

// A line of the log, at level "warn".
void log_warning(std::string_view message);

}  // namespace unisono
