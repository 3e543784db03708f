#include "base/selection_file.h"

#include <cstddef>

#include "base/error.h"
#include "base/file.h"

namespace unisono {
namespace {

// Some 100,000 rows.
constexpr std::size_t max_selection_file_bytes = std::size_t{16} << 20;

}  // namespace

Result<std::string> read_selection_file(const Settings& settings) {
  auto text = read_bounded(settings.text(Setting::selection_file), max_selection_file_bytes);
  if (!text.ok()) return misuse("UNISONO_SELECTION_FILE: ", text.error().message);
  return text;
}

}  // namespace unisono
