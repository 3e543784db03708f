#include "compile/layout.h"

#include <utility>

#include "base/str.h"

namespace unisono::compile {

Layout::Layout(const plan::Header& header) : header_(header) {
  const std::int64_t chunks = header.chunks_per_block;
  add("input", header.input_blocks * chunks);
  add("output", header.output_blocks * chunks);
}

void Layout::add(std::string name, std::int64_t chunks) {
  Region region{std::move(name), chunks, cells_, 0};
  if (buffers() > first_scratch) {
    const Region& last = regions_.back();
    region.scratch_offset = last.scratch_offset + last.chunks;
  }
  regions_.push_back(std::move(region));
  cells_ += chunks * header_.ranks;
}

int Layout::add_scratch(std::string name, std::int64_t chunks) {
  add(std::move(name), chunks);
  return buffers() - 1;
}

Layout Layout::refined(int factor) const {
  plan::Header header = header_;
  header.chunks_per_block *= factor;
  Layout out(header);
  for (int buffer = first_scratch; buffer < buffers(); ++buffer)
    out.add_scratch(region(buffer).name, region(buffer).chunks * factor);
  return out;
}

int Layout::find(std::string_view name) const {
  for (int buffer = 0; buffer < buffers(); ++buffer)
    if (region(buffer).name == name) return buffer;
  return -1;
}

std::int64_t Layout::chunks(int rank, int buffer) const {
  const std::int64_t per_block = header_.chunks_per_block;
  if (buffer == input) return plan::input_blocks_of(header_, rank) * per_block;
  if (buffer == output) return plan::output_blocks_of(header_, rank) * per_block;
  return region(buffer).chunks;
}

std::int32_t Layout::cell(int rank, int buffer, std::int64_t chunk) const {
  if (buffer < first_scratch) {
    const auto storage = plan::storage_of(header_, rank, static_cast<plan::Buffer>(buffer), chunk);
    buffer = static_cast<int>(storage.buffer);
    chunk = storage.chunk;
  }
  const Region& it = region(buffer);
  return static_cast<std::int32_t>(it.first + rank * it.chunks + chunk);
}

Layout::Names Layout::names(std::int32_t cell) const {
  Names out;
  out.buffer = buffers() - 1;
  while (region(out.buffer).first > cell) --out.buffer;
  const Region& it = region(out.buffer);
  // Cells have 32 bits, whose division is several times as fast as that of 64.
  const auto offset = static_cast<std::uint32_t>(cell - it.first);
  const auto per_rank = static_cast<std::uint32_t>(it.chunks);
  out.rank = static_cast<int>(offset / per_rank);
  out.chunk = offset % per_rank;
  if (out.buffer >= first_scratch) return out;
  // The other name of a shared cell differs by the place of the smaller buffer in the larger one.
  const int other = out.buffer == input ? output : input;
  (out.buffer == input ? out.input : out.output) = out.chunk;
  const auto storage = plan::storage_of(header_, out.rank, static_cast<plan::Buffer>(other), 0);
  if (static_cast<int>(storage.buffer) != out.buffer) return out;
  const std::int64_t chunk = out.chunk - storage.chunk;
  if (chunk < 0 || chunk >= chunks(out.rank, other)) return out;
  (out.buffer == input ? out.output : out.input) = chunk;
  return out;
}

std::int64_t Layout::scratch_chunks() const {
  if (buffers() == first_scratch) return 0;
  return regions_.back().scratch_offset + regions_.back().chunks;
}

std::string Layout::describe(std::int32_t cell) const {
  const Names it = names(cell);
  return str(region(it.buffer).name, "[", it.chunk, "] of rank ", it.rank);
}

}  // namespace unisono::compile
