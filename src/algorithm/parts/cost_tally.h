// Adds up what an algorithm's ranks send, phase by phase, for the part of a cost that depends on
// where the ranks are.
#pragma once

#include <algorithm>
#include <vector>

#include "algorithm/algorithm.h"
#include "algorithm/parts/level_chain.h"

namespace unisono::algorithm {

// A phase is a step of the α-β model: every rank may send in it, none waits for another's message
// of the same phase.
class CostTally {
 public:
  explicit CostTally(const topo::Placement& placement)
      : placement_(placement),
        sent_(static_cast<std::size_t>(placement.ranks())),
        sent_inter_node_(sent_.size()),
        messages_(sent_.size()),
        messages_inter_node_(sent_.size()),
        chains_(placement.levels().empty() ? 0 : sent_.size()),
        next_chains_(chains_) {}

  // In the phase that is open, `rank` sends `bytes` to `peer`, in so many messages of which only
  // one is on the longest chain.
  void send(int rank, int peer, double bytes, int messages = 1) {
    sent_[static_cast<std::size_t>(rank)] += bytes;
    count(messages_, rank, peer);
    messages_of_all_ += messages;
    any_ = true;
    if (!chains_.empty()) follow(rank, peer);
    if (placement_.same_node(rank, peer)) return;
    sent_inter_node_[static_cast<std::size_t>(rank)] += bytes;
    count(messages_inter_node_, rank, peer);
    messages_of_all_inter_node_ += messages;
    crosses_ = true;
  }
  void end_phase() {
    if (any_) ++steps_;
    if (crosses_) ++steps_inter_node_;
    any_ = crosses_ = false;
    chains_ = next_chains_;
  }

  Cost total(double bytes_reduced) const {
    Cost cost{.steps = steps_,
              .steps_inter_node = steps_inter_node_,
              .messages = most(messages_),
              .messages_inter_node = most(messages_inter_node_),
              .messages_of_all = messages_of_all_,
              .messages_of_all_inter_node = messages_of_all_inter_node_,
              .bytes_sent = *std::max_element(sent_.begin(), sent_.end()),
              .bytes_sent_inter_node =
                  *std::max_element(sent_inter_node_.begin(), sent_inter_node_.end()),
              .bytes_reduced = bytes_reduced};
    if (chains_.empty()) return cost;
    LevelChain longest;
    for (const LevelChain& chain : chains_) longest.follow(chain);
    set_steps_leaving(cost, longest);
    return cost;
  }

 private:
  struct Messages {
    std::int64_t sent = 0;
    std::int64_t taken = 0;
  };
  static void count(std::vector<Messages>& messages, int rank, int peer) {
    ++messages[static_cast<std::size_t>(rank)].sent;
    ++messages[static_cast<std::size_t>(peer)].taken;
  }
  static std::int64_t most(const std::vector<Messages>& messages) {
    std::int64_t most = 0;
    for (const Messages& of_rank : messages) most = std::max({most, of_rank.sent, of_rank.taken});
    return most;
  }

  void follow(int rank, int peer) {
    const LevelChain& before = chains_[static_cast<std::size_t>(rank)];
    LevelChain& next = next_chains_[static_cast<std::size_t>(peer)];
    next.follow(placement_.same_node(rank, peer)
                    ? before
                    : before.after(placement_.levels_left(rank, peer), placement_.levels()));
  }

  const topo::Placement& placement_;
  // By rank.
  std::vector<double> sent_, sent_inter_node_;
  std::vector<Messages> messages_, messages_inter_node_;
  // By rank, what has come before the open phase, and with it; none without levels.
  std::vector<LevelChain> chains_, next_chains_;
  std::int64_t messages_of_all_ = 0, messages_of_all_inter_node_ = 0;
  std::int64_t steps_ = 0, steps_inter_node_ = 0;
  bool any_ = false, crosses_ = false;
};

}  // namespace unisono::algorithm
