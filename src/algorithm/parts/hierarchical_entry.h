// The registry's entry of a hierarchical collective, made from its Writer.
#pragma once

#include <string_view>

#include "algorithm/algorithm.h"
#include "algorithm/parts/hierarchical.h"
#include "algorithm/parts/lanes.h"
#include "algorithm/request.h"
#include "plan/builder.h"

namespace unisono::algorithm {

// What the writers of all-gather and of reduce-scatter, which is its reverse, have in common.
class HalfWriter {
 public:
  static constexpr std::string_view source = "PCCL, section 4";
  static constexpr std::string_view constraint =
      "any number of ranks; one node not 64 times larger than two others";
  static constexpr int ways = 1;

  static plan::Header header(const Request& request, BetweenNodes between) {
    return hierarchical_header(request, between, ways, 1, is_staged(request, between));
  }

  HalfWriter(plan::ProgramBuilder& builder, const Request& request, Hierarchy hierarchy, int rank)
      : builder_(builder),
        request_(request),
        hierarchy_(hierarchy),
        lanes_(request.placement, rank),
        node_(lanes_.node_group()),
        staged_(is_staged(request, hierarchy.between)),
        chunks_per_block_(channels_used(request, hierarchy.between, ways)) {}

 protected:
  plan::ProgramBuilder& builder_;
  const Request& request_;
  Hierarchy hierarchy_;
  Lanes lanes_;
  Group node_;
  bool staged_;
  int chunks_per_block_;
};

// A Writer appends one rank's program, channel by channel, and knows what differs between the
// collectives: the channels that it takes for each of lane_channels() (ways), the header, the cost.
template <class Writer, BetweenNodes between, InsideNode inside>
struct HierarchicalEntry {
  static Status supports(const Request& request) { return fits_channels(request, Writer::ways); }

  static plan::Header header(const Request& request) { return Writer::header(request, between); }

  static plan::RankProgram program(const Request& request, int rank) {
    plan::ProgramBuilder builder(rank);
    Writer writer(builder, request, {between, inside}, rank);
    for (int channel = 0; channel < channels_used(request, between, Writer::ways); ++channel)
      writer.write(channel);
    return builder.take();
  }

  static Cost cost(const Request& request, double block_bytes) {
    return Writer::cost(request, {between, inside}, block_bytes);
  }

  static constexpr Entry entry(std::string_view name, std::string_view summary) {
    return {.name = name,
            .collective = Writer::collective,
            .summary = summary,
            .source = Writer::source,
            .constraint = Writer::constraint,
            .supports = supports,
            .header = header,
            .program = program,
            .cost = cost,
            .symmetry = symmetry,
            .passes_on = inside == InsideNode::ring};
  }

 private:
  static Symmetry symmetry(const Request&) {
    switch (between) {
      case BetweenNodes::ring:
      case BetweenNodes::pat:
        return Symmetry::rotation;
      case BetweenNodes::recursive:
        return Symmetry::exclusive_or;
      case BetweenNodes::bruck:
        return Symmetry::none;  // a message that goes round the end of a buffer is two
    }
  }
};

}  // namespace unisono::algorithm
