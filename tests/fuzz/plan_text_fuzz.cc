// The text form of a plan: no input may crash the reader, and what it accepts prints as a text
// that reads back the same.

#include <cstdlib>

#include "plan/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace unisono::plan;
  const auto plan = parse({reinterpret_cast<const char*>(data), size});
  if (!plan.ok()) return 0;
  const auto again = parse(print(*plan));
  if (!again.ok() || *again != *plan) std::abort();
  return 0;
}
