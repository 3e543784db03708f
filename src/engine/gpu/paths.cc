#include "engine/gpu/paths.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/selection_file.h"
#include "base/settings.h"
#include "base/sha256.h"
#include "base/str.h"
#include "base/try.h"
#include "engine/gpu/execution.h"

namespace unisono::engine::gpu {
namespace {

// With which the rows were measured.
constexpr std::uint64_t measured_zero_copy_min_bytes = 2 << 20;

std::uint32_t bit_of(Collective collective) {
  return std::uint32_t{1} << static_cast<unsigned>(collective);
}

bool needs_mapped_peers(Path path) { return path == Path::zero_copy || path == Path::tma_bulk; }

// `bytes` in proportion to the setting, rounded up.
std::uint64_t scaled(std::uint64_t bytes, std::uint64_t zero_copy_min_bytes) {
  if (bytes == UINT64_MAX || zero_copy_min_bytes == measured_zero_copy_min_bytes) return bytes;
  const auto product = static_cast<unsigned __int128>(bytes) * zero_copy_min_bytes;
  const auto out = (product + measured_zero_copy_min_bytes - 1) / measured_zero_copy_min_bytes;
  return out > UINT64_MAX ? UINT64_MAX : static_cast<std::uint64_t>(out);
}

}  // namespace

bool PathRow::serves(const PathCall& call) const {
  const int sms = call.options.at_most(no_bound);
  return min_bytes <= call.longest && call.longest <= max_bytes &&
         (collectives & bit_of(call.collective)) != 0 && (hops == 0 || hops == call.hops) &&
         min_ranks <= call.ranks && call.ranks <= max_ranks && min_sms <= sms && sms <= max_sms &&
         (overlaps < 0 || (overlaps == 1) == call.options.compute_overlap);
}

bool PathRow::overlaps_with(const PathRow& other) const {
  return architecture == other.architecture && (collectives & other.collectives) != 0 &&
         (hops == 0 || other.hops == 0 || hops == other.hops) && min_ranks <= other.max_ranks &&
         other.min_ranks <= max_ranks && min_bytes <= other.max_bytes &&
         other.min_bytes <= max_bytes && min_sms <= other.max_sms && other.min_sms <= max_sms &&
         (overlaps < 0 || other.overlaps < 0 || overlaps == other.overlaps);
}

std::string PathRow::text() const {
  return str("sm_", architecture, ' ', name(path), " collectives ", hex(collectives), " hops ",
             hops, " ranks ", min_ranks, "..", max_ranks, " bytes ", min_bytes, "..", max_bytes,
             " sms ", min_sms, "..", max_sms, " overlap ", overlaps, " thread blocks ",
             thread_blocks, " slots ", slots, " of ", chunk_bytes);
}

PathChoice Paths::find(const PathCall& call) const {
  for (const PathRow& row : rows_) {
    if (!row.serves(call)) continue;
    const int wanted = row.thread_blocks > 0 ? row.thread_blocks : call.options.max_sms;
    return {row.path, call.options.at_most(wanted), row.slots, row.chunk_bytes, &row};
  }
  return {};
}

const PathTable& PathTable::built_in() {
  static const PathTable table = [] {
    PathTable made;
    if (auto rows = read_path_rows(built_in_paths, "built-in table"); rows.ok())
      made.built_in_rows_ = std::move(*rows);
    return made;
  }();
  return table;
}

Result<PathTable> PathTable::from_settings(const Settings& settings) {
  PathTable out = built_in();
  const std::string& path = settings.text(Setting::selection_file);
  if (path.empty()) return out;
  UNISONO_ASSIGN(const std::string text, read_selection_file(settings));
  UNISONO_TRY(out.read(text, path));
  return out;
}

Status PathTable::read(std::string_view text, std::string_view origin) {
  UNISONO_ASSIGN(file_rows_, read_path_rows(text, origin));
  file_text_ = text;
  return {};
}

int PathTable::newest_architecture() const {
  int newest = 0;
  for (const PathRow& row : built_in_rows_) newest = std::max(newest, row.architecture);
  for (const PathRow& row : file_rows_) newest = std::max(newest, row.architecture);
  return newest;
}

Paths PathTable::resolve(int architecture, bool has_tma, std::uint64_t zero_copy_min_bytes) const {
  std::set<int> known;
  for (const PathRow& row : built_in_rows_) known.insert(row.architecture);
  int nearest = known.empty() ? architecture : *known.begin();
  for (const int one : known)
    if (one <= architecture) nearest = one;
  Paths out;
  out.architecture_ = architecture;
  const auto add = [&](PathRow row) {
    if (row.path == Path::tma_bulk && !has_tma) return;
    if (needs_mapped_peers(row.path)) {
      if (zero_copy_min_bytes == UINT64_MAX) return;
      row.min_bytes = scaled(row.min_bytes, zero_copy_min_bytes);
      if (row.max_bytes != UINT64_MAX) {
        const std::uint64_t end = scaled(row.max_bytes + 1, zero_copy_min_bytes);
        if (end == 0) return;
        row.max_bytes = end - 1;
      }
    }
    if (row.min_bytes <= row.max_bytes) out.rows_.push_back(std::move(row));
  };
  for (const PathRow& row : file_rows_)
    if (row.architecture == architecture) add(row);
  for (const PathRow& row : built_in_rows_)
    if (row.architecture == nearest) add(row);
  return out;
}

std::uint64_t PathTable::hash() const {
  std::string all;
  for (const auto* rows : {&file_rows_, &built_in_rows_})
    for (const PathRow& row : *rows) append(all, row.text() + "\n");
  append(all, file_text_);
  return sha256_word(all);
}

trace::ChosenPath interpreter_path(int thread_blocks, Protocol protocol, const Options& options) {
  std::size_t payload = protocol == Protocol::ll ? options.slot_bytes / 2 : options.slot_bytes;
  if (protocol == Protocol::ll128)
    payload = payload / device::ll128_line_bytes * device::ll128_line_payload;
  return {.variant = Path::interpreter,
          .thread_blocks = thread_blocks,
          .slots = options.slots,
          .chunk_bytes = static_cast<std::uint32_t>(payload)};
}

}  // namespace unisono::engine::gpu
