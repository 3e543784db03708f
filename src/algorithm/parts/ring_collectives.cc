#include "algorithm/parts/ring_collectives.h"

#include "algorithm/request.h"

namespace unisono::algorithm {

plan::Header ring_header(const Request& request, int directions, int chunks_per_channel) {
  const int channels = request.channels * directions;
  plan::Header header = header_for(request, chunks_per_channel * channels);
  header.channels = channels;
  return header;
}

plan::RankProgram ring_program(const Request& request, int rank, int directions, RingWriter write) {
  plan::ProgramBuilder builder(rank);
  const int channels = request.channels * directions;
  for (int channel = 0; channel < channels; ++channel) {
    const Ring ring(request.placement, channel / directions, channel % directions == 1);
    // A reduction may still have to multiply what lies in place.
    if (ring.size() > 1)
      write(builder, ring, request, rank, channel, channels);
    else if (!request.in_place || is_reduction(request.collective))
      builder.block(channel, -1, -1).copy(plan::input(channel), plan::output(channel));
  }
  return builder.take();
}

}  // namespace unisono::algorithm
