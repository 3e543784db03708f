// Who sends how much to whom, read off a program.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <vector>

#include "algorithm/algorithm.h"
#include "plan/walk.h"

namespace unisono::algorithm {

struct Sent {
  int peer = -1;
  int chunks = 0;
  bool operator==(const Sent&) const = default;
};
inline std::ostream& operator<<(std::ostream& out, const Sent& sent) {
  return out << sent.chunks << " to " << sent.peer;
}

// The messages that the program sends on a channel, thread block after thread block.
inline std::vector<Sent> messages_of(const plan::RankProgram& program, int channel = 0) {
  std::vector<Sent> messages;
  for (const plan::ThreadBlock& block : program.thread_blocks)
    for (plan::StepCursor cursor(block.body); cursor.step() != nullptr; cursor.advance())
      if (block.channel == channel && plan::sends(cursor.step()->operation))
        messages.push_back({block.send_peer, cursor.step()->count});
  return messages;
}

// Of `rank` of a single node, by one channel and out of place unless said.
inline plan::RankProgram program_of(const Entry& entry, int ranks, int rank, int root = 0,
                                    bool in_place = false) {
  const Request request{.collective = entry.collective,
                        .placement = topo::Placement::single_node(ranks),
                        .root = root,
                        .in_place = in_place};
  Result<plan::RankProgram> program = make_program(entry, request, rank);
  EXPECT_TRUE(program.ok()) << program.error().message;
  return program.ok() ? std::move(program).value() : plan::RankProgram{};
}

inline std::vector<Sent> messages_of(const Entry& entry, int ranks, int rank, int root = 0) {
  return messages_of(program_of(entry, ranks, rank, root));
}

using Messages = std::vector<Sent>;

}  // namespace unisono::algorithm
