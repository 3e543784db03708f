// Asks the process's interrupt check now and then; see <unisono/interrupt.h>.
#pragma once

#include <unisono/interrupt.h>

#include <cstdint>

namespace unisono::comm {

// Tells one thread's wait when to end.
class InterruptWatch {
 public:
  // After each poll. True when the check was due and says that the wait is to end. Without a check
  // it costs one relaxed load.
  bool interrupted();

 private:
  std::int64_t polls_ = 0;
  std::int64_t next_ns_ = 0;
};

}  // namespace unisono::comm
