// Where the executor gets programs from: one rank at a time, when that rank starts.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <vector>

#include "plan/plan.h"
#include "simulate/body_hash.h"
#include "simulate/symmetry.h"

namespace unisono::simulate {

// How a thread block is connected. Sender and receiver of a connection give the same key.
struct Wire {
  std::uint64_t send_key = 0;  // meaningless without a peer
  std::uint64_t recv_key = 0;
  int send_way = 0;  // index of the way in the executor's table: 0 inside a node, 1 + level between
};

struct WiredProgram {
  plan::RankProgram program;
  std::vector<Wire> wires;         // by thread block
  std::vector<ChunkSizes> chunks;  // by chunk, for programs of several calls; otherwise empty
};

class Programs {
 public:
  virtual ~Programs() = default;
  virtual Result<WiredProgram> program(int rank) = 0;
  // Ranks with different seeds are never in the same state, whatever their programs.
  virtual std::uint64_t seed(int) const { return 0; }
  // If not trivial, seeds are equal, and sender, receiver and channel tell connections apart.
  // `uniform`: all chunks of a block are of one size.
  virtual Symmetry symmetry(int ranks, bool uniform) const {
    static_cast<void>(uniform);
    return Symmetry::none(ranks);
  }
};

}  // namespace unisono::simulate
