// Requests to live sockets: none makes an answer larger than a file of a record.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "comm/observe/live.h"
#include "trace/file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto entries =
      unisono::comm::entries_asked_for({reinterpret_cast<const char*>(data), size});
  if (entries && *entries > unisono::trace::most_entries) std::abort();
  return 0;
}
