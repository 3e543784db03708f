// The connections of PAT's trees: one by each power of two, used for many messages.
#pragma once

#include <map>

#include "algorithm/parts/group.h"

namespace unisono::algorithm {

class PatLinks {
 public:
  enum class Direction : std::uint8_t { up, down };  // data goes to higher members or to lower ones

  PatLinks(Phase& phase, Direction direction) : phase_(phase), direction_(direction) {}

  // The thread block that sends to the member 2^bit further, and the one that receives from the
  // member 2^bit before.
  plan::BlockBuilder& sender(int bit) { return block(senders_, bit, true); }
  plan::BlockBuilder& receiver(int bit) { return block(receivers_, bit, false); }

  Ready all_done() const {
    Ready ready;
    for (const auto* blocks : {&senders_, &receivers_})
      for (const auto& [bit, block] : *blocks) ready.push_back(done(block));
    return ready;
  }

 private:
  plan::BlockBuilder& block(std::map<int, plan::BlockBuilder>& blocks, int bit, bool sends) {
    const auto known = blocks.find(bit);
    if (known != blocks.end()) return known->second;
    const Group& group = phase_.group;
    const std::int64_t distance = std::int64_t{1} << bit;
    const bool higher = sends == (direction_ == Direction::up);
    const int peer = group.rank(group.member_at(group.me() + (higher ? distance : -distance)));
    plan::BlockBuilder made =
        phase_.program.block(phase_.channel, sends ? peer : -1, sends ? -1 : peer);
    wait_for(made, phase_.start);
    return blocks.emplace(bit, made).first->second;
  }

  Phase& phase_;
  Direction direction_;
  std::map<int, plan::BlockBuilder> senders_, receivers_;
};

}  // namespace unisono::algorithm
