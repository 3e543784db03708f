// The text form of GOAL: no input may crash the reader, and what it accepts is written so that it
// reads back the same.

#include <cstdlib>

#include "simulate/goal.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace unisono::simulate::goal;
  const auto schedule = read_text({reinterpret_cast<const char*>(data), size});
  if (!schedule.ok()) return 0;
  const auto again = read_text(write_text(*schedule));
  if (!again.ok() || *again != *schedule) std::abort();
  return 0;
}
