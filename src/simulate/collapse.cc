#include "simulate/collapse.h"

#include <algorithm>
#include <unordered_map>

#include "base/try.h"

namespace unisono::simulate {
namespace {

constexpr std::uint32_t none = UINT32_MAX;
// A chain needs as many rounds as it has ranks, and ends with a class for each: no gain in sight.
constexpr int max_rounds = 64;

class Hash {
 public:
  Hash& add(std::uint64_t value) {
    state_ = (state_ ^ value) * 0x9e3779b97f4a7c15;
    state_ ^= state_ >> 32;
    return *this;
  }
  Hash& add(std::int64_t value) { return add(static_cast<std::uint64_t>(value)); }
  Hash& add(int value) { return add(static_cast<std::uint64_t>(value)); }
  std::uint64_t get() const { return state_; }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325;
};

void add_index(Hash& hash, const plan::Index& index) {
  hash.add(index.base).add(index.modulus).add(index.scale).add(index.offset);
  for (const std::int64_t coefficient : index.coefficient) hash.add(coefficient);
}

// Which of a block's chunks an index is, whatever the loops' values; -1 where that depends on them.
std::int64_t chunk_of_block(const plan::Index& index, std::int64_t chunks_per_block) {
  const auto is_whole = [&](std::int64_t chunks) { return chunks % chunks_per_block == 0; };
  bool stays = is_whole(index.modulus * index.scale);
  for (const std::int64_t coefficient : index.coefficient)
    stays = stays && is_whole(coefficient * index.scale);
  if (!stays && !is_whole(index.scale) && !index.is_constant()) return -1;
  const std::int64_t chunk = index.at({}) % chunks_per_block;
  return chunk < 0 ? chunk + chunks_per_block : chunk;
}

// Of the chunks whose sizes are a step's bytes (StepSizes): alike where the step is as large, tile
// for tile.
void add_chunks(Hash& hash, const plan::Step& step, std::int64_t chunks_per_block) {
  const plan::Index& index =
      (plan::writes_destination(step.operation) ? step.destination : step.source).index;
  const std::int64_t chunk = chunk_of_block(index, chunks_per_block);
  hash.add(chunk);
  if (chunk < 0) add_index(hash, index);
}

std::uint64_t hash_of(const plan::Step& step, std::int64_t chunks_per_block) {
  Hash hash;
  hash.add(static_cast<int>(step.operation)).add(step.count);
  add_chunks(hash, step, chunks_per_block);
  hash.add(std::uint64_t{step.peers.size()}).add(std::uint64_t{step.after.size()});
  for (const plan::Dependency& dependency : step.after) {
    hash.add(dependency.thread_block);
    add_index(hash, dependency.steps);
  }
  return hash.get();
}

// Steps that are alike, one after the other. A loop of one such step is as good as the steps: which
// of them a plan has depends on what its chunks' numbers let be written as a loop.
struct Run {
  std::uint64_t step;
  std::int64_t count;
};

std::vector<Run> runs_of(const plan::Body& body, std::int64_t chunks_per_block) {
  std::vector<Run> runs;
  const auto add = [&](std::uint64_t step, std::int64_t count) {
    if (!runs.empty() && runs.back().step == step)
      runs.back().count += count;
    else if (count > 0)
      runs.push_back({step, count});
  };
  for (const plan::Node& node : body) {
    if (const auto* step = std::get_if<plan::Step>(&node)) {
      add(hash_of(*step, chunks_per_block), 1);
      continue;
    }
    const plan::Loop& loop = std::get<plan::Loop>(node);
    const std::vector<Run> inner = runs_of(loop.body, chunks_per_block);
    if (inner.size() == 1) {
      add(inner[0].step, inner[0].count * loop.count);
      continue;
    }
    Hash hash;
    for (const Run& run : inner) hash.add(run.step).add(run.count);
    add(hash.get(), loop.count);
  }
  return runs;
}

// One end of a connection as its rank sees it.
struct End {
  std::uint32_t peer = none;
  std::uint32_t block = none;  // of the peer, the one at the other end
  std::uint64_t key = 0;
};
struct Block {
  End to, from;
  int way = 0;
};

class Refinement {
 public:
  explicit Refinement(const std::vector<Endpoint>& endpoints) : endpoints_(endpoints) {}

  Status read(Programs& all, std::int64_t chunks_per_block);
  // False if a connection has one end only.
  bool connect();
  // False if it did not come to an end, or hardly any ranks are alike.
  bool refine();
  std::unique_ptr<CollapsedPrograms> result(Programs& all) const;

 private:
  std::size_t ranks() const { return endpoints_.size(); }
  std::span<const Block> blocks_of(std::size_t rank) const {
    return std::span(blocks_).subspan(first_[rank], first_[rank + 1] - first_[rank]);
  }
  void tell_users_of_nics_apart();
  void colour_nics();
  std::size_t count_colours() const;

  const std::vector<Endpoint>& endpoints_;
  std::vector<Block> blocks_;
  std::vector<std::size_t> first_{0};      // by rank, into blocks_
  std::vector<std::uint64_t> colour_;      // by rank
  std::vector<bool> uses_nic_;             // by rank
  std::vector<std::uint64_t> nic_colour_;  // by port
};

Status Refinement::read(Programs& all, std::int64_t chunks_per_block) {
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    UNISONO_ASSIGN(const WiredProgram wired, all.program(static_cast<int>(rank)));
    Hash hash;
    hash.add(all.seed(static_cast<int>(rank)));
    bool uses_nic = false;
    for (std::size_t i = 0; i < wired.wires.size(); ++i) {
      const plan::ThreadBlock& block = wired.program.thread_blocks[i];
      Block& added = blocks_.emplace_back();
      hash.add(block.channel).add(block.send_peer >= 0 ? 1 : 0).add(block.recv_peer >= 0 ? 1 : 0);
      for (const Run& run : runs_of(block.body, chunks_per_block))
        hash.add(run.step).add(run.count);
      added.way = block.send_peer >= 0 ? wired.wires[i].send_way : 0;
      uses_nic = uses_nic || added.way > 0;
      if (block.send_peer >= 0)
        added.to = {static_cast<std::uint32_t>(block.send_peer), none, wired.wires[i].send_key};
      if (block.recv_peer >= 0)
        added.from = {static_cast<std::uint32_t>(block.recv_peer), none, wired.wires[i].recv_key};
    }
    first_.push_back(blocks_.size());
    colour_.push_back(hash.get());
    uses_nic_.push_back(uses_nic);
  }
  return {};
}

bool Refinement::connect() {
  std::unordered_map<std::uint64_t, std::uint32_t> senders;  // by key: a block's place in blocks_
  for (std::size_t rank = 0; rank < ranks(); ++rank)
    for (std::size_t i = first_[rank]; i < first_[rank + 1]; ++i)
      if (blocks_[i].to.peer != none) senders[blocks_[i].to.key] = static_cast<std::uint32_t>(i);
  std::size_t connected = 0;
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    for (std::size_t i = first_[rank]; i < first_[rank + 1]; ++i) {
      Block& receiver = blocks_[i];
      if (receiver.from.peer == none) continue;
      const auto found = senders.find(receiver.from.key);
      if (found == senders.end()) return false;
      receiver.from.block = static_cast<std::uint32_t>(found->second - first_[receiver.from.peer]);
      Block& sender = blocks_[found->second];
      sender.to.block = static_cast<std::uint32_t>(i - first_[rank]);
      if (sender.way > 0) uses_nic_[rank] = true;
      ++connected;
    }
  }
  return connected == senders.size();
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

bool Refinement::refine() {
  tell_users_of_nics_apart();
  std::size_t classes = count_colours();
  std::vector<std::uint64_t> next(ranks());
  for (int round = 0; round < max_rounds; ++round) {
    if (classes > ranks() / 2) return false;
    colour_nics();
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      Hash hash;
      hash.add(colour_[rank]);
      if (uses_nic_[rank]) hash.add(nic_colour_[endpoints_[rank].nic_port]);
      for (const Block& block : blocks_of(rank)) {
        for (const End& end : {block.to, block.from})
          hash.add(end.peer == none ? 0 : colour_[end.peer]).add(std::uint64_t{end.block});
        hash.add(block.way);
      }
      next[rank] = hash.get();
    }
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
      Wire wire{.send_key = key(number, index++), .send_way = block.way};
      if (block.from.peer != none) wire.recv_key = key(class_of[block.from.peer], block.from.block);
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

Result<std::unique_ptr<CollapsedPrograms>> collapse(const std::vector<Endpoint>& endpoints,
                                                    Programs& all, std::int64_t chunks_per_block) {
  Refinement refinement(endpoints);
  UNISONO_TRY(refinement.read(all, chunks_per_block));
  if (!refinement.connect() || !refinement.refine()) return std::unique_ptr<CollapsedPrograms>();
  return refinement.result(all);
}

}  // namespace unisono::simulate
