// The registry's entry of a hierarchical collective, made from its Writer.
#pragma once

#include <string_view>

#include "algorithm/algorithm.h"
#include "algorithm/hierarchical.h"
#include "plan/builder.h"

namespace unisono::algorithm {

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
            .cost = cost};
  }
};

}  // namespace unisono::algorithm
