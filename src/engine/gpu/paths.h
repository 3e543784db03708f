// Paths: which kernel carries a call of a plan in protocol LL128, and with how many thread blocks.
//
// What decides is data: rows by GPU architecture, number of ranks, collective, size and SM budget.
// The built-in rows (built_in_paths.cc) and those of a selection file have one format. All ranks of
// a communicator have the same rows, so that they choose alike.
#pragma once

#include <unisono/call_options.h>
#include <unisono/result.h>
#include <unisono/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trace/record.h"

namespace unisono {
class Settings;
}

namespace unisono::engine::gpu {

using trace::Path;

// What ranks know alike of a call.
struct PathCall {
  Collective collective;
  int ranks;
  int hops;
  std::uint64_t longest;  // bytes of the longest message: a block, or of two hops a segment
  CallOptions options = {};
};

struct PathRow {
  static constexpr int no_bound = INT32_MAX;  // as an SM budget: the call has none

  int architecture = 0;  // 90 of sm_90
  Path path = Path::ll128_all_pairs;
  std::uint32_t collectives = 0;  // a bit for each
  int hops = 0;                   // 0: any
  int min_ranks = 2;
  int max_ranks = 8;
  std::uint64_t min_bytes = 0;
  std::uint64_t max_bytes = UINT64_MAX;
  int min_sms = 1;
  int max_sms = no_bound;
  int overlaps = -1;      // 0: calls without that hint, 1: calls with it, -1: both
  int thread_blocks = 0;  // 0: as many as the SM budget, or as the size needs
  // For tma_bulk: the stages of each warp, and the bytes of each source's tile in one; 0: what fits
  // shared memory.
  int slots = 0;
  int chunk_bytes = 0;
  std::string origin;

  bool serves(const PathCall& call) const;
  // Whether some call is served by both.
  bool overlaps_with(const PathRow& other) const;
  // As one line, without the origin.
  std::string text() const;
};

struct PathChoice {
  Path path = Path::ll128_all_pairs;
  int thread_blocks = 0;  // 0: as many as the size needs
  int slots = 0;          // as the row's
  int chunk_bytes = 0;
  const PathRow* row = nullptr;  // null: no row serves the call
};

// The rows that hold for the devices of one communicator.
class Paths {
 public:
  PathChoice find(const PathCall& call) const;
  const std::vector<PathRow>& rows() const { return rows_; }
  int architecture() const { return architecture_; }

 private:
  friend class PathTable;
  std::vector<PathRow> rows_;
  int architecture_ = 0;
};

class PathTable {
 public:
  static const PathTable& built_in();
  // The built-in rows, preceded by those of the selection file that the settings name, if any.
  static Result<PathTable> from_settings(const Settings& settings);

  // Adds the array "paths" of a selection file, if there is one. Misuse names the line and value.
  Status read(std::string_view text, std::string_view origin);
  // Those for an architecture: rows of a file must name it; of the built-in ones those of the
  // newest architecture that is not newer hold, or those of the oldest. Rows of kernels that need
  // peers' buffers mapped were measured with `zero_copy_min_bytes` of 2 MiB, and their sizes are in
  // proportion to it. Without TMA, rows of tma_bulk are left out.
  Paths resolve(int architecture, bool has_tma, std::uint64_t zero_copy_min_bytes) const;
  int newest_architecture() const;
  // Differs where the rows or the file differ.
  std::uint64_t hash() const;

 private:
  std::vector<PathRow> file_rows_;
  std::vector<PathRow> built_in_rows_;
  std::string file_text_;
};

// "sm_90" as 90; 0: it is no such name.
int architecture_from_name(std::string_view name);

// The built-in rows as the text of a selection file (built_in_paths.cc).
extern const std::string_view built_in_paths;

// The line of an element of an array that is a member of the outermost object of a JSON text, which
// must parse.
int line_of_element(std::string_view text, std::string_view member, std::size_t element);
Result<std::vector<PathRow>> read_path_rows(std::string_view text, std::string_view origin);

}  // namespace unisono::engine::gpu
