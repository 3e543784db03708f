// How long a thread waits to be notified before it looks by itself. Waiting without an end,
// std::condition_variable::wait(), would keep packages from systems whose libstdc++ is older than
// GCC 12's.
#pragma once

#include <chrono>

namespace unisono {

inline constexpr std::chrono::hours recheck_interval(1);

}  // namespace unisono
