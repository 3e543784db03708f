// A rank's program for the copy engines: its thread blocks' steps put into one order, because a
// stream does one thing after another.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <vector>

#include "engine/gpu/lower.h"
#include "plan/check.h"
#include "plan/exchange.h"
#include "plan/plan.h"

namespace unisono::engine::gpu {

// What the copy engines can do of a plan: nothing that combines elements.
plan::Limits copy_limits();

struct CopyStep {
  enum class Kind : std::uint8_t { send, receive, copy };
  struct Place {
    plan::Buffer buffer = plan::Buffer::input;
    std::int64_t chunk = 0;
  };
  Kind kind = Kind::copy;
  int link = -1;  // of a message: which of the program's connections
  Place from;     // not of a message received
  Place to;       // not of a message sent
  int count = 1;  // chunks
  // The earlier step that receives what a send forwards; -1: the rank has the data itself.
  int received_by = -1;
  // Whether no step before a receive touches its destination, so that the message may arrive early,
  // and whether it is forwarded.
  bool comes_early = false;
  bool is_sent_on = false;
};

struct CopyProgram {
  std::vector<ProgramConnection> connections;
  std::vector<CopyStep> steps;  // of a tile; one tile follows the other
};

// In how many hops the messages of plans of that exchange are zero-copy, of
// up to two, the second of segments; 0: through slots alone. What a rank copies inside itself must
// be its own.
int zero_copy_hops(const plan::Exchange& exchange);

// What thread blocks may do at once is done in turns: all that can be sent, then the receiving step
// that is the first of its thread block's. Misuse, naming it, for what cannot be done by copies.
Result<CopyProgram> lower_to_copies(const plan::Header& header, const plan::RankProgram& program);

// Misuse if the ranks, each in its own order, would wait for each other for ever.
Status check_order(const plan::Header& header, const std::vector<CopyProgram>& programs, int slots);

}  // namespace unisono::engine::gpu
