// The settings of libunisono_nccl.so alone, in addition to those of the core library.
#pragma once

#include <unisono/settings.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace unisono::nccl {

enum class Setting : std::uint8_t { host_memory, comm_id };

struct SettingRow {
  Setting setting;
  std::string_view variable;
  SettingType type;
  std::string_view default_text;
  std::string_view meaning;  // one or two full sentences
};

// Read from the environment once. Misuse names the variable and what would be right.
const Result<ProcessSetting>& value_of(Setting setting);

// The settings of the library below, and these. One that cannot be read has its default.
std::vector<ProcessSetting> all_settings();

}  // namespace unisono::nccl
