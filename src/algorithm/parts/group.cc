#include "algorithm/parts/group.h"

#include <algorithm>

namespace unisono::algorithm {

BlockMap BlockMap::strided(plan::Buffer buffer, std::int64_t first, std::int64_t stride,
                           int chunks) {
  BlockMap map;
  map.buffer_ = buffer;
  map.origin_ = first;
  map.stride_ = stride;
  map.uniform_chunks_ = chunks;
  return map;
}

BlockMap BlockMap::table(plan::Buffer buffer, std::vector<std::int64_t> first,
                         std::vector<int> chunks) {
  BlockMap map;
  map.buffer_ = buffer;
  map.first_ = std::move(first);
  map.chunks_ = std::move(chunks);
  return map;
}

BlockMap& BlockMap::limit_message(int chunks) {
  message_limit_ = chunks;
  return *this;
}

void BlockMap::append(std::vector<Run>& runs, int block) const {
  std::int64_t chunk = first_chunk(block);
  int left = chunks(block);
  while (left > 0) {
    const bool continues = !runs.empty() && runs.back().count < message_limit_ &&
                           runs.back().location.index.base + runs.back().count == chunk;
    if (!continues) runs.push_back({{buffer_, chunk}, 0});
    const int added = std::min(left, message_limit_ - runs.back().count);
    runs.back().count += added;
    chunk += added;
    left -= added;
  }
}

std::vector<Run> BlockMap::runs(int first, int count) const {
  std::vector<Run> result;
  for (int block = first; block < first + count; ++block) append(result, block);
  return result;
}

std::vector<Run> BlockMap::runs(std::span<const int> blocks) const {
  std::vector<Run> result;
  for (int block : blocks) append(result, block);
  return result;
}

}  // namespace unisono::algorithm
