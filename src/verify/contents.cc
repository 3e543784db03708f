#include "verify/contents.h"

#include <algorithm>

#include "base/str.h"

namespace unisono::verify {

Sums::Sums(int contributions) : contributions_(contributions), sets_(contributions) {
  entries_.push_back({unwritten, unwritten, RankSets::none});
  for (int rank = 0; rank < contributions; ++rank)
    for (int twice = 0; twice < 2; ++twice)
      entries_.push_back({unwritten, unwritten, sets_.single(rank)});
}

Sum Sums::add(Sum a, Sum b) {
  if (a > b) std::swap(a, b);
  const auto hash = static_cast<std::uint32_t>(mix(pair_key(a, b)));
  const Sum known = by_operands_.find(
      hash, [&](Sum sum) { return entry(sum).left == a && entry(sum).right == b; });
  if (known >= 0) return known;
  const RankSets::Union both = sets_.unite(ranks_of(a), ranks_of(b));
  if (!both.disjoint) return -1;
  const auto sum = static_cast<Sum>(entries_.size());
  entries_.push_back({a, b, both.set});
  by_operands_.insert(hash, sum);
  return sum;
}

std::string Sums::describe(Sum sum, const Contents& contents) const {
  const std::size_t most = contents.is_custom() ? 360 : 120;
  std::string text;
  // A stack of sums and, negated, of characters: sums nest as deep as there are ranks.
  std::vector<Sum> open{sum};
  while (!open.empty() && text.size() < most) {
    const Sum top = open.back();
    open.pop_back();
    if (top < 0) {
      append(text, static_cast<char>(-top));
    } else if (top <= 2 * contributions_) {
      append(text, contents.contribution_name((top - 1) / 2));
    } else {
      auto [left, right, ranks] = entry(top);
      if (left <= 2 * contributions_ && right > 2 * contributions_)
        std::swap(left, right);  // as one writes it
      open.insert(open.end(), {-Sum{')'}, right, -Sum{'+'}, left, -Sum{'('}});
    }
  }
  if (!open.empty()) append(text, "...");
  return text;
}

std::size_t Sums::memory_bytes() const {
  return sets_.memory_bytes() + entries_.size() * sizeof(Entry) + by_operands_.memory_bytes();
}

int Contents::contributions() const {
  return is_custom() ? contribution(header_->ranks, 0) : header_->ranks;
}

int Contents::contribution(int rank, std::int64_t chunk) const {
  if (!is_custom()) return rank;
  const std::int64_t chunks = std::int64_t{header_->input_blocks} * header_->chunks_per_block;
  return static_cast<int>(rank * chunks + chunk);
}

RankSets::Id Contents::required_set(int rank, std::int64_t chunk, RankSets& sets) const {
  if (!is_custom()) return sets.all();
  const std::int64_t chunks = std::int64_t{header_->output_blocks} * header_->chunks_per_block;
  RankSets::Id all = RankSets::none;
  for (const std::int32_t one :
       conditions_->required[static_cast<std::size_t>(rank * chunks + chunk)])
    all = sets.unite(all, sets.single(one)).set;
  return all;
}

std::int64_t Contents::initial(int rank, std::int64_t chunk) const {
  const std::int64_t chunks = header_->chunks_per_block;
  switch (header_->collective) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::reduce_scatter:
      return chunk;
    case Collective::all_gather:
    case Collective::gather:
      return rank * chunks + chunk;
    case Collective::broadcast:
    case Collective::scatter:
      return rank == header_->root ? chunk : -1;
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      return std::int64_t{rank} * header_->ranks * chunks + chunk;
    case Collective::custom:
      if (!conditions_ || !conditions_->given[static_cast<std::size_t>(contribution(rank, chunk))])
        return -1;
      return chunk % chunks;
    case Collective::barrier:
    case Collective::point_to_point:
      return -1;
  }
  return -1;
}

std::int64_t Contents::required(int rank, std::int64_t chunk) const {
  const std::int64_t chunks = header_->chunks_per_block;
  const bool is_root = rank == header_->root;
  switch (header_->collective) {
    case Collective::all_reduce:
    case Collective::all_gather:
    case Collective::broadcast:
      return chunk;
    case Collective::reduce:
    case Collective::gather:
      return is_root ? chunk : -1;
    case Collective::reduce_scatter:
    case Collective::scatter:
      return rank * chunks + chunk;
    case Collective::all_to_all:
    case Collective::all_to_all_v: {
      const std::int64_t source = chunk / chunks;
      return (source * header_->ranks + rank) * chunks + chunk % chunks;
    }
    case Collective::custom: {
      const std::int64_t all = header_->output_blocks * chunks;
      if (!conditions_ ||
          conditions_->required[static_cast<std::size_t>(rank * all + chunk)].empty())
        return -1;
      return chunk % chunks;
    }
    case Collective::barrier:
    case Collective::point_to_point:
      return -1;
  }
  return -1;
}

std::string Contents::describe(std::int64_t position) const {
  const std::int64_t chunks = header_->chunks_per_block;
  const std::int64_t block = position / chunks;
  const std::int64_t chunk = position % chunks;
  switch (header_->collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return str("chunk ", chunk);
    case Collective::reduce_scatter:
      return str("chunk ", chunk, " of block ", block);
    case Collective::all_gather:
    case Collective::gather:
      return str("chunk ", chunk, " of rank ", block, "'s input");
    case Collective::broadcast:
      return str("chunk ", chunk, " of rank ", header_->root, "'s input");
    case Collective::scatter:
      return str("chunk ", chunk, " of block ", block, " of rank ", header_->root, "'s input");
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      return str("chunk ", chunk, " of block ", block % header_->ranks, " of rank ",
                 block / header_->ranks, "'s input");
    case Collective::barrier:
    case Collective::point_to_point:
    case Collective::custom:
      break;
  }
  return str("chunk ", position);
}

std::string Contents::contribution_name(int contribution) const {
  if (!is_custom()) return str(contribution);
  const int chunks = header_->input_blocks * header_->chunks_per_block;
  return str("input[", contribution % chunks, "] of rank ", contribution / chunks);
}

std::string Contents::describe_contributions(RankSets::Id set, const RankSets& sets) const {
  if (!is_custom()) return str("rank ", sets.describe(set));
  constexpr std::size_t most = 8;
  std::vector<std::string> parts;
  for (int one = 0; one < contributions() && parts.size() <= most; ++one)
    if (sets.contains(set, one)) parts.push_back(contribution_name(one));
  if (parts.size() > most) parts.back() = "...";
  return parts.empty() ? "nothing" : join(parts, " + ");
}

std::string Contents::describe_sum(std::int64_t position, RankSets::Id set,
                                   const RankSets& sets) const {
  if (!is_custom()) return str(describe(position), " of ", describe_contributions(set, sets));
  // Which data it is, the contributions say. A result must also lie at its place in a block.
  const std::string place =
      header_->chunks_per_block > 1 ? str(", as chunk ", position, " of a block") : "";
  return str(describe_contributions(set, sets), place);
}

std::string Contents::only_the_root_has(plan::Buffer buffer) const {
  const Collective collective = header_->collective;
  const bool is_input = buffer == plan::Buffer::input &&
                        (collective == Collective::broadcast || collective == Collective::scatter);
  const bool is_output = buffer == plan::Buffer::output &&
                         (collective == Collective::reduce || collective == Collective::gather);
  if (!is_input && !is_output) return "";
  return str("only rank ", header_->root, ", the root, has an ", name(buffer), " in ",
             unisono::name(collective));
}

}  // namespace unisono::verify
