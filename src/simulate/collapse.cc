#include "simulate/collapse.h"

#include <algorithm>
#include <unordered_map>

#include "base/try.h"
#include "simulate/body_hash.h"
#include "simulate/hash.h"
#include "simulate/wiring.h"

namespace unisono::simulate {
namespace {

constexpr std::uint32_t none = UINT32_MAX;
// A chain needs as many rounds as it has ranks, and ends with a class for each: no gain in sight.
constexpr int max_rounds = 64;

// One end of a connection as its rank sees it.
struct End {
  std::uint32_t peer = none;
  std::uint32_t block = none;  // of the peer, the one at the other end
  std::uint64_t key = 0;
};
struct Block {
  End to, from;
};

class Refinement {
 public:
  Refinement(const Machine& machine, const std::vector<Endpoint>& endpoints,
             const Symmetry& symmetry)
      : machine_(machine), endpoints_(endpoints), symmetry_(symmetry) {}

  Status read(Programs& all, const ChunkSizes& chunks);
  // False if a connection has one end only.
  bool connect();
  // False if it did not come to an end, or hardly any ranks are alike.
  bool refine();
  std::unique_ptr<CollapsedPrograms> result(Programs& all) const;

 private:
  std::size_t ranks() const { return endpoints_.size(); }
  // The blocks of the rank's pattern.
  std::span<const Block> blocks_of(std::size_t rank) const {
    const std::size_t pattern = pattern_of(rank);
    return std::span(blocks_).subspan(first_[pattern], first_[pattern + 1] - first_[pattern]);
  }
  std::size_t pattern_of(std::size_t rank) const {
    return static_cast<std::size_t>(symmetry_.pattern_of(static_cast<int>(rank)));
  }
  // Whom a rank meets at an end of its pattern's.
  std::size_t peer_of(std::size_t rank, const End& end) const {
    return static_cast<std::size_t>(
        symmetry_.carried(static_cast<int>(rank), static_cast<int>(end.peer)));
  }
  int way(std::size_t from, std::size_t to) const {
    return way_between(machine_, endpoints_[from].node, endpoints_[to].node);
  }
  std::uint64_t key_of(std::uint64_t wire, int sender, int receiver, int channel) const;
  void find_users_of_nics();
  void tell_users_of_nics_apart();
  void colour_nics();
  std::uint64_t next_colour(std::size_t rank) const;
  std::size_t count_colours() const;

  const Machine& machine_;
  const std::vector<Endpoint>& endpoints_;
  const Symmetry& symmetry_;
  std::vector<Block> blocks_;              // of patterns
  std::vector<std::size_t> first_{0};      // by pattern, into blocks_
  std::vector<std::uint64_t> colour_;      // by rank
  std::vector<bool> uses_nic_;             // by rank
  std::vector<std::uint64_t> nic_colour_;  // by port
};

// The same for all connections that are carried into each other: that of the receiver's pattern.
// Ranks are below 2^20 and channels below 2^12: plan::format_limits().
std::uint64_t Refinement::key_of(std::uint64_t wire, int sender, int receiver, int channel) const {
  if (symmetry_.is_trivial()) return wire;
  const auto pattern = static_cast<std::uint64_t>(symmetry_.pattern_of(receiver));
  const auto from = static_cast<std::uint64_t>(symmetry_.carried_back(receiver, sender));
  return (pattern << 32) | (from << 12) | static_cast<std::uint64_t>(channel);
}

Status Refinement::read(Programs& all, const ChunkSizes& chunks) {
  for (int rank = 0; rank < symmetry_.patterns(); ++rank) {
    UNISONO_ASSIGN(const WiredProgram wired, all.program(rank));
    Hash hash;
    hash.add(all.seed(rank));
    for (std::size_t i = 0; i < wired.wires.size(); ++i) {
      const plan::ThreadBlock& block = wired.program.thread_blocks[i];
      Block& added = blocks_.emplace_back();
      hash.add(block.channel).add(block.send_peer >= 0 ? 1 : 0).add(block.recv_peer >= 0 ? 1 : 0);
      hash.add(body_hash(block.body, wired.chunks.empty() ? chunks : wired.chunks[i]));
      if (block.send_peer >= 0)
        added.to = {static_cast<std::uint32_t>(block.send_peer), none,
                    key_of(wired.wires[i].send_key, rank, block.send_peer, block.channel)};
      if (block.recv_peer >= 0)
        added.from = {static_cast<std::uint32_t>(block.recv_peer), none,
                      key_of(wired.wires[i].recv_key, block.recv_peer, rank, block.channel)};
    }
    first_.push_back(blocks_.size());
    colour_.push_back(hash.get());
  }
  while (colour_.size() < ranks()) colour_.push_back(colour_[pattern_of(colour_.size())]);
  find_users_of_nics();
  return {};
}

bool Refinement::connect() {
  std::unordered_map<std::uint64_t, std::uint32_t> senders;  // by key: a block's place in blocks_
  for (std::uint32_t i = 0; i < blocks_.size(); ++i)
    if (blocks_[i].to.peer != none) senders[blocks_[i].to.key] = i;
  std::size_t connected = 0;
  for (std::size_t pattern = 0; pattern + 1 < first_.size(); ++pattern) {
    for (std::size_t i = first_[pattern]; i < first_[pattern + 1]; ++i) {
      Block& receiver = blocks_[i];
      if (receiver.from.peer == none) continue;
      const auto found = senders.find(receiver.from.key);
      if (found == senders.end()) return false;
      receiver.from.block =
          static_cast<std::uint32_t>(found->second - first_[pattern_of(receiver.from.peer)]);
      blocks_[found->second].to.block = static_cast<std::uint32_t>(i - first_[pattern]);
      ++connected;
    }
  }
  return connected == senders.size();
}

// Who sends to another node, or is sent to from one.
void Refinement::find_users_of_nics() {
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    const auto is_far = [&](const End& end) {
      return end.peer != none && way(rank, peer_of(rank, end)) > 0;
    };
    const std::span<const Block> blocks = blocks_of(rank);
    uses_nic_.push_back(std::any_of(blocks.begin(), blocks.end(), [&](const Block& block) {
      return is_far(block.to) || is_far(block.from);
    }));
  }
}

// They take turns: who is first at equal times is not the one who is second.
void Refinement::tell_users_of_nics_apart() {
  std::unordered_map<std::uint32_t, int> users;
  for (std::size_t rank = 0; rank < ranks(); ++rank)
    if (uses_nic_[rank])
      colour_[rank] = Hash().add(colour_[rank]).add(users[endpoints_[rank].nic_port]++).get();
}

// A NIC's colour is made of those of its users, in their order.
void Refinement::colour_nics() {
  std::uint32_t ports = 0;
  for (const Endpoint& endpoint : endpoints_) ports = std::max(ports, endpoint.nic_port + 1);
  nic_colour_.assign(ports, 0);
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    if (!uses_nic_[rank]) continue;
    std::uint64_t& colour = nic_colour_[endpoints_[rank].nic_port];
    colour = Hash().add(colour).add(colour_[rank]).get();
  }
}

std::size_t Refinement::count_colours() const {
  std::vector<std::uint64_t> sorted = colour_;
  std::sort(sorted.begin(), sorted.end());
  return static_cast<std::size_t>(std::unique(sorted.begin(), sorted.end()) - sorted.begin());
}

std::uint64_t Refinement::next_colour(std::size_t rank) const {
  Hash hash;
  hash.add(colour_[rank]);
  if (uses_nic_[rank]) hash.add(nic_colour_[endpoints_[rank].nic_port]);
  const auto add = [&](const End& end) {
    if (end.peer == none) {
      hash.add(0);
      return;
    }
    const std::size_t peer = peer_of(rank, end);
    hash.add(colour_[peer]).add(std::uint64_t{end.block}).add(way(rank, peer));
  };
  for (const Block& block : blocks_of(rank)) {
    add(block.to);
    add(block.from);
  }
  return hash.get();
}

bool Refinement::refine() {
  tell_users_of_nics_apart();
  std::size_t classes = count_colours();
  std::vector<std::uint64_t> next(ranks());
  for (int round = 0; round < max_rounds; ++round) {
    if (classes > ranks() / 2) return false;
    colour_nics();
    for (std::size_t rank = 0; rank < ranks(); ++rank) next[rank] = next_colour(rank);
    colour_.swap(next);
    const std::size_t refined = count_colours();
    if (refined == classes) return true;
    classes = refined;
  }
  return false;
}

std::unique_ptr<CollapsedPrograms> Refinement::result(Programs& all) const {
  std::unordered_map<std::uint64_t, std::uint32_t> numbers;
  std::vector<std::uint32_t> class_of, first_rank;
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    const auto next = static_cast<std::uint32_t>(first_rank.size());
    const auto [found, is_new] = numbers.try_emplace(colour_[rank], next);
    if (is_new) first_rank.push_back(static_cast<std::uint32_t>(rank));
    class_of.push_back(found->second);
  }
  const auto classes = static_cast<std::uint32_t>(first_rank.size());
  std::unordered_map<std::uint64_t, std::uint32_t> nics;
  std::vector<Endpoint> endpoints;
  std::vector<std::vector<Wire>> wires;
  const auto key = [](std::uint32_t number, std::uint32_t block) {
    return (std::uint64_t{number} << 32) | block;
  };
  for (std::uint32_t number = 0; number < classes; ++number) {
    const std::uint32_t rank = first_rank[number];
    Endpoint endpoint = endpoints_[rank];
    const std::uint64_t colour = uses_nic_[rank] ? nic_colour_[endpoint.nic_port]
                                                 : Hash().add(-1).add(std::uint64_t{number}).get();
    const auto next = static_cast<std::uint32_t>(nics.size());
    endpoint.nic_port = classes + nics.try_emplace(colour, next).first->second;
    endpoint.node_port = endpoint.core = number;
    endpoints.push_back(endpoint);
    std::vector<Wire>& own = wires.emplace_back();
    std::uint32_t index = 0;
    for (const Block& block : blocks_of(rank)) {
      Wire wire{.send_key = key(number, index++)};
      if (block.to.peer != none) wire.send_way = way(rank, peer_of(rank, block.to));
      if (block.from.peer != none)
        wire.recv_key = key(class_of[peer_of(rank, block.from)], block.from.block);
      own.push_back(wire);
    }
  }
  return std::make_unique<CollapsedPrograms>(all, std::move(class_of), std::move(first_rank),
                                             std::move(endpoints), std::move(wires));
}

}  // namespace

CollapsedPrograms::CollapsedPrograms(Programs& all, std::vector<std::uint32_t> class_of,
                                     std::vector<std::uint32_t> first_rank,
                                     std::vector<Endpoint> endpoints,
                                     std::vector<std::vector<Wire>> wires)
    : all_(all),
      class_of_(std::move(class_of)),
      first_rank_(std::move(first_rank)),
      endpoints_(std::move(endpoints)),
      wires_(std::move(wires)) {}

Result<WiredProgram> CollapsedPrograms::program(int number) {
  const auto index = static_cast<std::size_t>(number);
  UNISONO_ASSIGN(WiredProgram wired, all_.program(static_cast<int>(first_rank_[index])));
  wired.wires = wires_[index];
  for (plan::ThreadBlock& block : wired.program.thread_blocks)
    for (int* peer : {&block.send_peer, &block.recv_peer})
      if (*peer >= 0) *peer = static_cast<int>(class_of_[static_cast<std::size_t>(*peer)]);
  return wired;
}

Result<std::unique_ptr<CollapsedPrograms>> collapse(const Machine& machine,
                                                    const std::vector<Endpoint>& endpoints,
                                                    Programs& all, const ChunkSizes& chunks) {
  const Symmetry symmetry =
      all.symmetry(static_cast<int>(endpoints.size()), chunks.equal == chunks.per_block);
  Refinement refinement(machine, endpoints, symmetry);
  UNISONO_TRY(refinement.read(all, chunks));
  if (!refinement.connect() || !refinement.refine()) return std::unique_ptr<CollapsedPrograms>();
  return refinement.result(all);
}

}  // namespace unisono::simulate
