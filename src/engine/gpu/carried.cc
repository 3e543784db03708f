#include "engine/gpu/carried.h"

#include "engine/gpu/copy_program.h"
#include "engine/gpu/direct.h"
#include "engine/gpu/lines.h"
#include "plan/exchange.h"

namespace unisono::engine::gpu {
namespace {

// Of plans of that protocol; copies have none.
bool is_carried(const algorithm::Entry& entry, Protocol protocol, int ranks) {
  if (protocol == Protocol::ll) return direct_kind(entry, ranks).has_value();
  if (protocol == Protocol::ll128) return lines_hops(entry, ranks) > 0;
  return straight_copy_hops(entry, ranks) > 0;
}

}  // namespace

const algorithm::Entry* reference_of(const plan::Plan& plan) {
  const plan::Header& header = plan.header;
  plan::Contents contents;
  const auto wanted = plan::exchange_of(plan, contents);
  if (!wanted) return nullptr;
  const algorithm::Request request{.collective = header.collective,
                                   .placement = topo::Placement::single_node(header.ranks),
                                   .root = header.root,
                                   .in_place = header.in_place,
                                   .protocol = header.protocol};
  const auto equals = [&](const algorithm::Entry& entry) {
    const auto made = algorithm::make_plan(entry, request);
    if (!made.ok() || made->header.chunks_per_block != header.chunks_per_block) return false;
    return plan::exchange_of(*made, contents) == wanted;
  };
  // Those that copies alone carry come last: a plan of two ranks may equal several.
  for (const Protocol protocol : {header.protocol, Protocol::simple})
    for (const algorithm::Entry* entry : algorithm::entries_for(header.collective))
      if (is_carried(*entry, protocol, header.ranks) && equals(*entry)) return entry;
  return nullptr;
}

}  // namespace unisono::engine::gpu
