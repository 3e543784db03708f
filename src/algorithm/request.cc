#include "algorithm/request.h"

#include "algorithm/powers.h"
#include "base/error.h"

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

Status only_powers_of_two(const Request& request) {
  const int ranks = request.placement.ranks();
  if (is_power_of_two(ranks)) return {};
  return misuse(ranks, " ranks are no power of two; this algorithm needs ", 1 << floor_log2(ranks),
                " or ", 2 << floor_log2(ranks));
}

}  // namespace unisono::algorithm
