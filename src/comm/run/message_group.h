// The messages of a group as a program.
#pragma once

#include <unisono/communicator.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "engine/engine.h"
#include "plan/builder.h"

namespace unisono::comm {

class PointToPoint;

inline std::uint64_t bytes_of(const Message& message) {
  return static_cast<std::uint64_t>(message.count) * size_bytes(message.type);
}

class MessageGroup {
 public:
  // One direction's blocks: where each piece of each message lies, from the first one's address.
  struct Blocks {
    const std::byte* base = nullptr;
    std::vector<std::int64_t> counts;
    std::vector<std::int64_t> displacements;
    std::vector<std::uint64_t> calls;  // the fingerprints that pieces carry
    engine::Blocks view() const { return {counts, displacements, calls}; }
  };
  // What goes to or comes from a peer on a channel, by one thread block.
  using Key = std::tuple<int, bool, int>;
  struct Flow {
    plan::BlockBuilder block;
    std::uint32_t messages = 0;
    std::uint64_t bytes = 0;
  };

  MessageGroup(const PointToPoint& owner, int rank) : owner_(owner), rank_(rank), program_(rank) {}

  void add(const Message& message);
  // After all messages. Misuse if a message of the rank to itself has no match.
  Status add_self_copies();

  plan::RankProgram take_program() { return program_.take(); }
  // The tag that each of the plan's channels stands for.
  const std::vector<int>& tags() const { return tags_; }
  const std::map<Key, Flow>& flows() const { return flows_; }
  const Blocks& sends() const { return sends_; }
  const Blocks& recvs() const { return recvs_; }

 private:
  struct SelfMessage {
    std::int64_t first;  // its first block
    std::uint64_t bytes;
    std::uint64_t call;
  };

  int channel(int tag);
  Flow& flow_of(int peer, bool sends, int channel);

  const PointToPoint& owner_;
  int rank_;
  plan::ProgramBuilder program_;
  std::map<Key, Flow> flows_;
  std::vector<int> tags_;
  Blocks sends_, recvs_;
  std::vector<SelfMessage> to_self_, from_self_;
};

}  // namespace unisono::comm
