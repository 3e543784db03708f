// The memory that a program of the language moves chunks in: every chunk of every rank is a cell.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace unisono::compile {

// Buffers by number: 0 the input, 1 the output, from 2 on the scratch buffers in the order in
// which they were declared. Each has the same number of chunks on every rank that has it. Where
// the program is written in place, input and output share cells as plan::storage_of says.
class Layout {
 public:
  static constexpr int input = 0;
  static constexpr int output = 1;
  static constexpr int first_scratch = 2;

  Layout() = default;
  explicit Layout(const plan::Header& header);

  // The new buffer's number.
  int add_scratch(std::string name, std::int64_t chunks);
  // The same memory with each chunk divided into `factor`.
  Layout refined(int factor) const;

  const plan::Header& header() const { return header_; }
  int buffers() const { return static_cast<int>(regions_.size()); }
  const std::string& buffer_name(int buffer) const { return region(buffer).name; }
  // -1: no such buffer.
  int find(std::string_view name) const;
  std::int64_t chunks(int rank, int buffer) const;
  std::int64_t cells() const { return cells_; }

  std::int32_t cell(int rank, int buffer, std::int64_t chunk) const;

  // What a cell is called. input and output are -1 where the cell has no such name.
  struct Names {
    int rank = 0;
    int buffer = 0;            // the region that it lies in
    std::int64_t chunk = 0;    // in that region
    std::int64_t input = -1;   // chunk of the input
    std::int64_t output = -1;  // chunk of the output
  };
  Names names(std::int32_t cell) const;
  // Chunks of all scratch buffers before `buffer`.
  std::int64_t scratch_offset(int buffer) const { return region(buffer).scratch_offset; }
  std::int64_t scratch_chunks() const;
  // "output[3]" of rank 2, by the name that the region has.
  std::string describe(std::int32_t cell) const;

 private:
  struct Region {
    std::string name;
    std::int64_t chunks = 0;  // on a rank that has it
    std::int64_t first = 0;   // cell of rank 0's first chunk
    std::int64_t scratch_offset = 0;
  };
  const Region& region(int buffer) const { return regions_[static_cast<std::size_t>(buffer)]; }
  void add(std::string name, std::int64_t chunks);

  plan::Header header_;
  std::vector<Region> regions_;
  std::int64_t cells_ = 0;
};

}  // namespace unisono::compile
