#include <unisono/settings.h>

#include "base/log.h"
#include "base/settings.h"

namespace unisono {

std::vector<ProcessSetting> process_settings() {
  const Settings& settings = environment_settings();
  std::vector<ProcessSetting> out;
  for (const SettingRow& row : setting_rows())
    if (row.setting != Setting::secret)
      out.push_back({.variable = row.variable,
                     .text = settings.text(row.setting),
                     .is_number = row.type != SettingType::text,
                     .number = settings.integer(row.setting)});
  return out;
}

void log_warning(std::string_view message) { log(LogLevel::warn, message); }

}  // namespace unisono
