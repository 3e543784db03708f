// JSON: no input may crash the reader, and what it accepts is written, in both layouts, as a JSON
// that reads back the same.

#include <cstdlib>

#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace unisono::json;
  const auto value = parse({reinterpret_cast<const char*>(data), size});
  if (!value.ok()) return 0;
  for (auto layout : {Writer::Layout::one_line, Writer::Layout::lines}) {
    const auto again = parse(write(*value, layout));
    if (!again.ok() || *again != *value) std::abort();
  }
  return 0;
}
