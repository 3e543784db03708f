// Rows of a selection file that choose kernels: no input may crash the reader, and rows that it
// accepts have no call in common and resolve for every architecture that they name.

#include <cstdlib>

#include "engine/gpu/paths.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace unisono::engine::gpu;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto rows = read_path_rows(text, "input");
  if (!rows.ok()) return 0;
  PathTable table;
  if (!table.read(text, "input").ok()) std::abort();
  for (const PathRow& row : *rows) {
    for (const PathRow& other : *rows)
      if (&row != &other && row.overlaps_with(other)) std::abort();
    const Paths paths = table.resolve(row.architecture, true, 2 << 20);
    if (paths.rows().empty()) std::abort();
  }
  return 0;
}
