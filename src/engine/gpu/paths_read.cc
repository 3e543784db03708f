// The array "paths" of a selection file.

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "base/json.h"
#include "base/try.h"
#include "device/all_pairs.h"
#include "engine/gpu/paths.h"
#include "engine/gpu/tma_bulk.h"

namespace unisono::engine::gpu {
namespace {

// Those between which rows choose. The others follow from a plan's protocol, from its shape or from
// where its buffers are.
constexpr std::array chosen_by_rows{Path::ll128_all_pairs, Path::zero_copy, Path::tma_bulk};

std::string names_of_paths() {
  std::string out;
  for (const Path path : chosen_by_rows)
    append(out, str(out.empty() ? "" : path == chosen_by_rows.back() ? " or " : ", ", name(path)));
  return out;
}

std::uint32_t bit_of(Collective collective) {
  return std::uint32_t{1} << static_cast<unsigned>(collective);
}

// What plans in LL128 with kernels of their own there are.
constexpr std::array served{Collective::all_reduce,     Collective::all_gather,
                            Collective::reduce_scatter, Collective::all_to_all,
                            Collective::broadcast,      Collective::reduce,
                            Collective::gather,         Collective::scatter};

void read_architecture(json::ObjectReader& in, PathRow& row) {
  std::string text;
  in.required("architecture", text);
  if (!in.ok()) return;
  row.architecture = architecture_from_name(text);
  if (row.architecture == 0)
    in.fail("architecture", str("'", text, "' is no architecture; write for example sm_90"));
}

void read_variant(json::ObjectReader& in, PathRow& row) {
  std::string text;
  in.required("variant", text);
  if (!in.ok()) return;
  const auto* const found =
      std::ranges::find_if(chosen_by_rows, [&](Path path) { return name(path) == text; });
  if (found == chosen_by_rows.end())
    in.fail("variant",
            str("'", text, "' is no variant that a row can choose; write ", names_of_paths()));
  else
    row.path = *found;
}

void read_collectives(json::ObjectReader& in, PathRow& row) {
  const json::Array* names = in.required_array("collectives");
  if (names == nullptr) return;
  if (names->empty()) in.fail("collectives", "must name at least one collective");
  for (const json::Value& one : *names) {
    if (!one.is_string()) return in.fail("collectives", "must be names of collectives");
    const auto found = std::ranges::find_if(
        served, [&](Collective collective) { return name(collective) == one.string(); });
    if (found == served.end())
      return in.fail("collectives",
                     str("'", one.string(),
                         "' has no kernel that a row can choose; write all_reduce, "
                         "all_gather, reduce_scatter, all_to_all, broadcast, reduce, gather or "
                         "scatter"));
    row.collectives |= bit_of(*found);
  }
}

void read_bounds(json::ObjectReader& in, PathRow& row) {
  int ranks = 0;
  in.optional("ranks", ranks, 2, device::all_pairs_max_ranks);
  if (ranks > 0) row.min_ranks = row.max_ranks = ranks;
  in.optional("hops", row.hops, 1, 2);
  in.optional("min_bytes", row.min_bytes);
  in.optional("max_bytes", row.max_bytes);
  in.optional("min_sms", row.min_sms, 1, PathRow::no_bound - 1);
  in.optional("max_sms", row.max_sms, 1, PathRow::no_bound - 1);
  in.optional("thread_blocks", row.thread_blocks, 1, device::ll128_max_blocks);
  in.optional("slots", row.slots, 1, device::bulk_max_stages);
  in.optional("chunk_bytes", row.chunk_bytes, bulk_tile_grain, bulk_max_tile_bytes);
  bool flag = false;
  if (in.optional("overlap") != nullptr) {
    in.optional("overlap", flag);
    row.overlaps = flag ? 1 : 0;
  }
  if (in.optional("sm_bound") == nullptr) return;
  in.optional("sm_bound", flag);
  if (in.ok() && (row.min_sms != 1 || row.max_sms != PathRow::no_bound))
    return in.fail("sm_bound",
                   "is said by min_sms and max_sms already; write the one or the others");
  if (flag)
    row.max_sms = PathRow::no_bound - 1;
  else
    row.min_sms = PathRow::no_bound;
}

// An LL128 kernel has the slots of its connections, and a zero-copy kernel has none.
void check_slots(json::ObjectReader& in, const PathRow& row) {
  if (row.path != Path::tma_bulk) {
    for (const auto& [field, value] :
         {std::pair("slots", row.slots), std::pair("chunk_bytes", row.chunk_bytes)})
      if (value > 0)
        in.fail(field, str("is ", value, ", but a row of ", name(row.path),
                           " cannot set it; only rows of tma_bulk can"));
    return;
  }
  if (row.chunk_bytes % bulk_tile_grain != 0)
    in.fail("chunk_bytes",
            str(row.chunk_bytes, " is no multiple of ", bulk_tile_grain, ", what a warp moves"));
  for (int ranks = row.min_ranks; ranks <= row.max_ranks && in.ok(); ++ranks)
    for (const Collective collective : served) {
      if ((row.collectives & bit_of(collective)) == 0) continue;
      const bool is_sum = is_reduction(collective);
      const BulkStages wanted = bulk_stages(is_sum, ranks, row.slots, row.chunk_bytes);
      const int most = bulk_most_stages(is_sum, ranks, wanted.tile_bytes);
      const int least = bulk_least_stages(is_sum);
      if (wanted.stages < least || wanted.stages > most)
        return in.fail(
            row.slots > 0 ? "slots" : "chunk_bytes",
            str(row.slots > 0 ? row.slots : row.chunk_bytes, " cannot be: with chunks of ",
                wanted.tile_bytes, " bytes on ", ranks, " ranks, ",
                is_sum ? "sums need " : "copies need ", least, " slots or more, and ", most,
                most == 1 ? " fits" : " fit", " the shared memory of a warp"));
    }
}

// What the kernel of a row carries.
void check_carried(json::ObjectReader& in, const PathRow& row) {
  if (row.min_bytes > row.max_bytes)
    in.fail("max_bytes", str(row.max_bytes, " is less than min_bytes, ", row.min_bytes));
  if (row.min_sms > row.max_sms)
    in.fail("max_sms", str(row.max_sms, " is less than min_sms, ", row.min_sms));
  check_slots(in, row);
  const auto has = [&](Collective collective) {
    return (row.collectives & bit_of(collective)) != 0;
  };
  if (row.path == Path::zero_copy)
    for (const Collective collective : served)
      if (has(collective) &&
          (is_reduction(collective) || collective == Collective::broadcast || row.hops == 2))
        in.fail("collectives",
                str("'", name(collective), "' ", row.hops == 2 ? "in two hops " : "",
                    "is not carried by zero_copy, which moves blocks in one hop and adds nothing"));
  if (row.path != Path::tma_bulk) return;
  if (has(Collective::reduce) && row.hops != 2 && (row.hops != 1 || row.max_ranks > 2))
    in.fail("collectives",
            "'reduce' is carried by tma_bulk in two hops, or in one hop with two ranks; write hops "
            "and ranks");
  if (row.thread_blocks > device::bulk_max_blocks)
    in.fail("thread_blocks",
            str(row.thread_blocks, " is out of range for tma_bulk; it must be 1 to ",
                device::bulk_max_blocks));
  if (row.thread_blocks == 0 && row.max_sms > device::bulk_max_blocks)
    in.fail("thread_blocks", str("is missing: a row of tma_bulk needs it, or max_sms up to ",
                                 device::bulk_max_blocks, ", all of which it then uses"));
}

Result<PathRow> read_row(const json::Value& value, std::string_view origin, std::string where) {
  PathRow row;
  row.origin = origin;
  json::ObjectReader in(value, std::move(where));
  read_architecture(in, row);
  read_variant(in, row);
  read_collectives(in, row);
  read_bounds(in, row);
  if (in.ok()) check_carried(in, row);
  UNISONO_TRY(in.finish());
  return row;
}

// Position after the string that begins at `at`.
std::size_t after_string(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at)
    if (text[at] == '\\') ++at;
  return at + 1;
}

}  // namespace

int architecture_from_name(std::string_view name) {
  int number = 0;
  if (!name.starts_with("sm_")) return 0;
  const char* const end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + 3, end, number);
  return read.ec == std::errc() && read.ptr == end && 10 <= number && number < 1000 ? number : 0;
}

int line_of_element(std::string_view text, std::string_view member, std::size_t element) {
  int depth = 0;
  bool is_inside = false;
  std::size_t commas = 0;
  std::size_t at = 0;
  bool is_at_element = false;
  while (at < text.size()) {
    const char c = text[at];
    const bool is_space = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (is_inside && depth == 2 && commas == element && is_at_element && !is_space) break;
    if (c == '"') {
      const std::size_t end = std::min(after_string(text, at), text.size());
      if (depth == 1) is_inside = text.substr(at + 1, end - at - 2) == member;
      at = end;
      continue;
    }
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c == ',' && depth == 2 && is_inside) ++commas;
    if (depth == 2 && is_inside && (c == '[' || c == ',')) is_at_element = true;
    ++at;
  }
  return 1 + static_cast<int>(std::count(
                 text.begin(),
                 text.begin() + static_cast<std::ptrdiff_t>(std::min(at, text.size())), '\n'));
}

Result<std::vector<PathRow>> read_path_rows(std::string_view text, std::string_view origin) {
  auto document = json::parse(text);
  if (!document.ok()) return misuse(origin, ": ", document.error().message);
  std::vector<PathRow> rows;
  const json::Value* found = document->find("paths");
  if (found == nullptr) return rows;
  if (!found->is_array()) return misuse(origin, ": 'paths' must be an array of rows");
  const auto line_of = [&](std::size_t i) { return line_of_element(text, "paths", i); };
  for (std::size_t i = 0; i < found->array().size(); ++i) {
    auto row = read_row(found->array()[i], origin, str("paths[", i, "]"));
    if (!row.ok()) return misuse(origin, ", line ", line_of(i), ": ", row.error().message);
    for (std::size_t before = 0; before < rows.size(); ++before)
      if (rows[before].overlaps_with(*row))
        return misuse(origin, ", line ", line_of(i), ": paths[", i, "] overlaps paths[", before,
                      "] of line ", line_of(before), ": both serve some call of sm_",
                      row->architecture, "; rows must not have calls in common");
    rows.push_back(std::move(*row));
  }
  return rows;
}

}  // namespace unisono::engine::gpu
