// Adds up what an algorithm's ranks send, phase by phase, for the part of a cost that depends on
// where the ranks are.
#pragma once

#include <algorithm>
#include <vector>

#include "algorithm/algorithm.h"

namespace unisono::algorithm {

// A phase is a step of the α-β model: every rank may send in it, none waits for another's message
// of the same phase.
class CostTally {
 public:
  explicit CostTally(const topo::Placement& placement)
      : placement_(placement),
        sent_(static_cast<std::size_t>(placement.ranks())),
        sent_inter_node_(sent_.size()) {}

  // In the phase that is open, `rank` sends `bytes` to `peer`.
  void send(int rank, int peer, double bytes) {
    sent_[static_cast<std::size_t>(rank)] += bytes;
    any_ = true;
    if (placement_.same_node(rank, peer)) return;
    sent_inter_node_[static_cast<std::size_t>(rank)] += bytes;
    crosses_ = true;
  }
  void end_phase() {
    if (any_) ++steps_;
    if (crosses_) ++steps_inter_node_;
    any_ = crosses_ = false;
  }

  Cost total(double bytes_reduced) const {
    return {.steps = steps_,
            .steps_inter_node = steps_inter_node_,
            .bytes_sent = *std::max_element(sent_.begin(), sent_.end()),
            .bytes_sent_inter_node =
                *std::max_element(sent_inter_node_.begin(), sent_inter_node_.end()),
            .bytes_reduced = bytes_reduced};
  }

 private:
  const topo::Placement& placement_;
  std::vector<double> sent_, sent_inter_node_;  // by rank
  std::int64_t steps_ = 0, steps_inter_node_ = 0;
  bool any_ = false, crosses_ = false;
};

}  // namespace unisono::algorithm
