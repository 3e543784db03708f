#include "comm/bootstrap/process_settings.h"

#include <unisono/settings.h>

#include <mutex>

#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/try.h"

namespace unisono {
namespace {

// Never destroyed: a detached thread may read it while the process ends.
struct SharedKey {
  std::mutex mutex;
  std::string key;
  bool is_used = false;
};
SharedKey& shared() {
  static auto& only = *new SharedKey;
  return only;
}

}  // namespace

namespace comm {

std::string use_shared_key() {
  const std::lock_guard lock(shared().mutex);
  shared().is_used = true;
  return shared().key;
}

}  // namespace comm

std::vector<ProcessSetting> process_settings() {
  std::vector<ProcessSetting> out;
  for (const SettingRow& row : setting_rows())
    if (row.setting != Setting::secret)
      out.push_back({.variable = row.variable,
                     .text = settings().text(row.setting),
                     .is_number = row.type != SettingType::text,
                     .number = settings().integer(row.setting)});
  return out;
}

Status protect_wire(std::string_view protection, std::string_view shared_key) {
  const std::lock_guard lock(shared().mutex);
  if (protection != "none" && protection != "auth" && protection != "encrypt")
    return misuse("there is no wire protection '", protection, "'; write none, auth or encrypt");
  if (shared().is_used)
    return misuse(
        "this process has already invited ranks or joined a job; set the wire protection before "
        "that");
  UNISONO_TRY(settings().set(Setting::wire, protection));
  shared().key = shared_key;
  return {};
}

void log_warning(std::string_view message) { log(LogLevel::warn, message); }

}  // namespace unisono
