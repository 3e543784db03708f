// The settings of this process (UNISONO_*), for libraries above.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace unisono {

enum class SettingType : std::uint8_t { text, integer, size_bytes, duration, boolean };

struct ProcessSetting {
  std::string_view variable;  // "UNISONO_TIMEOUT"
  std::string text;           // as it was set, else the default
  bool is_number = false;     // a count, bytes, nanoseconds, or 0 and 1
  std::int64_t number = 0;
};

// All of them but the secret.
std::vector<ProcessSetting> process_settings();

// A variable of the environment that a library above declares for itself, read as those of the type
// above are; unset, it has its default. Misuse names the variable and what would be right.
Result<ProcessSetting> read_setting(std::string_view variable, SettingType type,
                                    std::string_view default_text);

// Sets how this process protects its traffic to other hosts from now on: "none", "auth" or
// "encrypt", as UNISONO_WIRE; and a key that all ranks need in addition to their job's secret, or
// "". The same on every rank. Misuse once the process has invited ranks or joined a job.
Status protect_wire(std::string_view protection, std::string_view shared_key);

// A line of the log, at level "warn".
void log_warning(std::string_view message);

}  // namespace unisono
