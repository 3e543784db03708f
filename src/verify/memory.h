// All memory that a plan uses, as one sequence of cells: a cell is one chunk of one rank.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace unisono::verify {

class Memory {
 public:
  explicit Memory(const plan::Plan& plan);

  std::int64_t cells() const { return first_.back(); }
  // The rank's cells are first(rank) .. first(rank + 1) - 1.
  std::int64_t first(int rank) const { return first_[static_cast<std::size_t>(rank)]; }

  std::int64_t chunks(int rank, plan::Buffer buffer) const { return of(rank, buffer).chunks; }
  // The cell of the first of `count` chunks, which follow each other; -1 unless all of them exist.
  std::int64_t cell(int rank, plan::Buffer buffer, std::int64_t chunk, std::int64_t count) const {
    const View& view = of(rank, buffer);
    if (chunk < 0 || chunk > view.chunks - count) return -1;
    return view.cell + chunk;
  }

  // A name for a cell, through `output` or `scratch` where they have it.
  struct Place {
    int rank;
    plan::Buffer buffer;
    std::int64_t chunk;
  };
  Place place(std::int64_t cell) const;

 private:
  struct View {
    std::int64_t cell = 0;
    std::int64_t chunks = 0;
  };
  const View& of(int rank, plan::Buffer buffer) const {
    return views_[3 * static_cast<std::size_t>(rank) + static_cast<std::size_t>(buffer)];
  }

  std::vector<View> views_;
  std::vector<std::int64_t> first_;
};

// How many cells a plan's memory has, without laying it out.
std::int64_t count_cells(const plan::Plan& plan);

}  // namespace unisono::verify
