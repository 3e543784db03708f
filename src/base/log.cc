#include "base/log.h"

#include <unistd.h>

#include <array>

#include "base/settings.h"

namespace unisono {
namespace {

constexpr std::array<std::string_view, 5> level_names{"off", "error", "warn", "info", "debug"};

LogLevel level_of_this_process() {
  const std::string wanted = environment_settings().text(Setting::log);
  for (std::size_t i = 0; i < level_names.size(); ++i)
    if (level_names[i] == wanted) return static_cast<LogLevel>(i);
  return LogLevel::warn;
}

thread_local int thread_rank = -1;

}  // namespace

LogLevel log_level() {
  static const LogLevel level = level_of_this_process();
  return level;
}
void set_log_rank(int rank) { thread_rank = rank; }

void write_log(LogLevel level, std::string_view message) {
  std::string line = str("unisono ", level_names[static_cast<std::size_t>(level)], " ");
  if (thread_rank >= 0) line += str("[rank ", thread_rank, "] ");
  line.append(message);
  line.push_back('\n');
  // One write, so that lines of several threads and processes do not mix. A log that cannot be
  // written has nowhere to report to.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace unisono
