// The JSON form of a plan: no input may crash the reader, and what it accepts is written as a JSON
// that reads back the same.

#include <cstdlib>

#include "plan/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace unisono::plan;
  const auto plan = from_json({reinterpret_cast<const char*>(data), size});
  if (!plan.ok()) return 0;
  const auto again = from_json(to_json(*plan));
  if (!again.ok() || *again != *plan) std::abort();
  return 0;
}
