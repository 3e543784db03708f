// What the ring algorithms share: a ring for each channel, in one direction or in both.
#pragma once

#include "algorithm/algorithm.h"
#include "algorithm/parts/ring.h"
#include "plan/builder.h"

namespace unisono::algorithm {

// Writes the thread block of `rank` on one of `channels` channels, of a ring of two or more.
using RingWriter = void (*)(plan::ProgramBuilder& builder, const Ring& ring, const Request& request,
                            int rank, int channel, int channels);

// With two directions, a ring that the request asks for is two channels, the odd one backwards.
plan::Header ring_header(const Request& request, int directions, int chunks_per_channel);
plan::RankProgram ring_program(const Request& request, int rank, int directions, RingWriter write);

}  // namespace unisono::algorithm
