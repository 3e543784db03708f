#include "algorithm/request.h"

namespace unisono::algorithm {

plan::Header header_for(const Request& request, int chunks_per_block, int max_step_count) {
  plan::Header header;
  header.collective = request.collective;
  header.ranks = request.placement.ranks();
  header.root = has_root(request.collective) ? request.root : 0;
  header.protocol = request.protocol;
  header.channels = request.channels;
  header.in_place = request.in_place;
  header.chunks_per_block = chunks_per_block;
  header.max_step_count = max_step_count;
  plan::set_blocks(header);
  return header;
}

Status any_ranks(const Request&) { return {}; }

Symmetry by_rotation(const Request&) { return Symmetry::rotation; }
Symmetry by_exclusive_or(const Request&) { return Symmetry::exclusive_or; }

}  // namespace unisono::algorithm
