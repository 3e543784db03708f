#include "algorithm/parts/group_collectives.h"

#include "algorithm/request.h"

namespace unisono::algorithm {

plan::RankProgram all_gather_program(const Request& request, int rank, AllGatherWriter write) {
  const int channels = request.channels;
  const Group group = Group::all(request.placement.ranks(), rank);
  plan::ProgramBuilder builder(rank);
  for (int channel = 0; channel < channels; ++channel) {
    Phase phase{.program = builder, .group = group, .channel = channel};
    phase.chunks_per_block = channels;
    const BlockMap blocks = BlockMap::strided(plan::Buffer::output, channel, channels, 1);
    write(phase, request.in_place ? blocks.at(rank) : plan::input(channel), blocks);
  }
  return builder.take();
}

plan::RankProgram reduce_scatter_program(const Request& request, int rank,
                                         ReduceScatterWriter write) {
  const int channels = request.channels;
  const Group group = Group::all(request.placement.ranks(), rank);
  plan::ProgramBuilder builder(rank);
  for (int channel = 0; channel < channels; ++channel) {
    Phase phase{.program = builder, .group = group, .channel = channel};
    phase.chunks_per_block = channels;
    write(phase, BlockMap::strided(plan::Buffer::input, channel, channels, 1),
          plan::output(channel));
  }
  return builder.take();
}

plan::Header group_header(const Request& request, int max_blocks) {
  return header_for(request, request.channels, request.channels == 1 ? max_blocks : 1);
}

}  // namespace unisono::algorithm
