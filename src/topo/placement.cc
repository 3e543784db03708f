#include "topo/placement.h"

#include <algorithm>

#include "base/error.h"
#include "base/try.h"

namespace unisono::topo {

Placement::Placement(std::vector<int> node_of_rank, int nodes)
    : node_of_(std::move(node_of_rank)),
      local_index_(node_of_.size()),
      order_(node_of_.size()),
      first_(static_cast<std::size_t>(nodes) + 1) {
  for (int node : node_of_) ++first_[static_cast<std::size_t>(node) + 1];
  for (std::size_t node = 1; node < first_.size(); ++node) first_[node] += first_[node - 1];
  std::vector<int> filled(static_cast<std::size_t>(nodes));
  for (std::size_t rank = 0; rank < node_of_.size(); ++rank) {
    const auto node = static_cast<std::size_t>(node_of_[rank]);
    local_index_[rank] = filled[node]++;
    order_[static_cast<std::size_t>(first_[node] + local_index_[rank])] = static_cast<int>(rank);
  }
  if (nodes == 0) return;
  const int on_first = ranks_on(0);
  bool is_regular = is_uniform();
  for (int rank = 0; is_regular && rank < ranks(); ++rank)
    is_regular = node_of(rank) == rank / on_first;
  if (is_regular) ranks_per_node_ = on_first;
}

Placement Placement::single_node(int ranks) { return uniform(1, ranks); }

Placement Placement::uniform(int nodes, int ranks_per_node) {
  std::vector<int> node_of(static_cast<std::size_t>(nodes) *
                           static_cast<std::size_t>(ranks_per_node));
  for (std::size_t rank = 0; rank < node_of.size(); ++rank)
    node_of[rank] = static_cast<int>(rank) / ranks_per_node;
  return Placement(std::move(node_of), nodes);
}

Result<Placement> Placement::blocks(std::span<const int> ranks_per_node) {
  std::vector<int> node_of;
  for (std::size_t node = 0; node < ranks_per_node.size(); ++node) {
    if (ranks_per_node[node] < 1)
      return misuse("node ", node, " has ", ranks_per_node[node],
                    " ranks; every node needs at least 1");
    node_of.insert(node_of.end(), static_cast<std::size_t>(ranks_per_node[node]),
                   static_cast<int>(node));
  }
  return from_nodes(node_of);
}

Result<Placement> Placement::from_nodes(std::span<const int> node_of_rank) {
  if (node_of_rank.empty()) return misuse("a placement needs at least 1 rank");
  const int last = *std::max_element(node_of_rank.begin(), node_of_rank.end());
  if (last >= static_cast<int>(node_of_rank.size()))
    return misuse("node number ", last, " is out of range: ", node_of_rank.size(),
                  " ranks fill at most nodes 0 to ", node_of_rank.size() - 1);
  const int nodes = last + 1;
  std::vector<bool> used(static_cast<std::size_t>(std::max(nodes, 0)));
  for (std::size_t rank = 0; rank < node_of_rank.size(); ++rank) {
    if (node_of_rank[rank] < 0)
      return misuse("rank ", rank, " is on node ", node_of_rank[rank],
                    "; nodes are numbered from 0");
    used[static_cast<std::size_t>(node_of_rank[rank])] = true;
  }
  for (std::size_t node = 0; node < used.size(); ++node)
    if (!used[node]) return misuse("node ", node, " of ", nodes, " has no rank");
  return Placement({node_of_rank.begin(), node_of_rank.end()}, nodes);
}

Result<Placement> Placement::with(Levels levels) const {
  Placement out = *this;
  out.levels_ = nullptr;
  if (levels.empty()) return out;
  if (levels.nodes() != nodes())
    return misuse("the levels are those of ", levels.nodes(), " nodes, and the ranks are on ",
                  nodes(), "; they must be of the same nodes");
  out.levels_ = std::make_shared<const Levels>(std::move(levels));
  return out;
}

Result<Placement> Placement::near(std::span<const int> node_of_rank, const Levels& levels) {
  const std::vector<int> order = levels.near_order();
  std::vector<int> number_of(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    number_of[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  std::vector<int> renumbered;
  for (const int node : node_of_rank) {
    if (node < 0 || node >= levels.nodes())
      return misuse("node number ", node, " is out of range: there are levels of nodes 0 to ",
                    levels.nodes() - 1);
    renumbered.push_back(number_of[static_cast<std::size_t>(node)]);
  }
  UNISONO_ASSIGN(const Placement placement, from_nodes(renumbered));
  return placement.with(levels.of(order));
}

Placement Placement::one_rank_per_node() const {
  Placement out = uniform(nodes(), 1);
  out.levels_ = levels_;
  return out;
}

const Levels& Placement::levels() const {
  static const Levels none;
  return levels_ ? *levels_ : none;
}

bool Placement::is_uniform() const {
  for (int node = 1; node < nodes(); ++node)
    if (ranks_on(node) != ranks_on(0)) return false;
  return true;
}

int Placement::max_ranks_on_a_node() const {
  int most = 0;
  for (int node = 0; node < nodes(); ++node) most = std::max(most, ranks_on(node));
  return most;
}

}  // namespace unisono::topo
