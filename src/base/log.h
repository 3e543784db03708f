// The log: one line to standard error, "unisono LEVEL [rank 3] message". Level from UNISONO_LOG.
#pragma once

#include <string_view>

#include "base/str.h"

namespace unisono {

enum class LogLevel : unsigned char { off, error, warn, info, debug };

LogLevel log_level();
// The rank that lines of this thread speak for; -1 for none.
void set_log_rank(int rank);
void write_log(LogLevel level, std::string_view message);

template <class... Parts>
void log(LogLevel level, const Parts&... parts) {
  if (level <= log_level()) write_log(level, str(parts...));
}

}  // namespace unisono
