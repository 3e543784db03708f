// The binary form of GOAL: no input may crash the reader, and what it accepts is written so that it
// reads back the same.

#include <cstdlib>

#include "simulate/goal.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace unisono::simulate::goal;
  const auto schedule = read_binary({reinterpret_cast<const char*>(data), size});
  if (!schedule.ok()) return 0;
  const std::string written = write_binary(*schedule);
  const auto again = read_binary(written);
  if (!again.ok() || *again != *schedule) std::abort();
  return 0;
}
