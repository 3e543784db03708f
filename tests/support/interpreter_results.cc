// What must come out, and whether it did.
#include <algorithm>

#include "base/str.h"
#include "support/interpreter_run.h"

namespace unisono::test::interpreter {

std::optional<std::string> Run::judge() {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (ended(i)) continue;
    fault(blocks_[i], "never goes on");
    return fault_;
  }
  for (const auto& [ends, connection] : connections_)
    if (!connection.messages.empty() || !connection.puts.empty())
      return str("messages are left from rank ", std::get<0>(ends), " to rank ", std::get<1>(ends));
  for (std::size_t tile = 0; tile < memory_.size(); ++tile)
    if (auto wrong = judge_results(tile)) return wrong;
  return std::nullopt;
}

std::optional<std::string> Run::judge_results(std::size_t tile) {
  const int t = static_cast<int>(tile);
  for (int rank = 0; rank < header_.ranks; ++rank) {
    const std::int64_t chunks =
        std::int64_t{plan::output_blocks_of(header_, rank)} * header_.chunks_per_block;
    for (std::int64_t i = 0; i < chunks; ++i) {
      const std::optional<Chunk> right = wanted(tile, rank, i);
      if (!right) continue;
      const Chunk& got = memory(t, rank, Buffer::output, i);
      if (!std::ranges::equal(*right, got, {}, &Element::sum, &Element::sum))
        return str("rank ", rank, " has a wrong result in output chunk ", i);
      if (header_.collective == Collective::all_reduce && got != memory(t, 0, Buffer::output, i))
        return str("rank ", rank, " added output chunk ", i, " in another order than rank 0");
    }
    if (header_.in_place || !has_input(rank)) continue;
    const std::vector<Chunk>& before = inputs_[tile][rank];
    for (std::size_t i = 0; i < before.size(); ++i)
      if (memory(t, rank, Buffer::input, static_cast<std::int64_t>(i)) != before[i])
        return str("rank ", rank, "'s input was written");
  }
  return std::nullopt;
}

std::optional<Chunk> Run::wanted(std::size_t tile, int rank, std::int64_t chunk) {
  const auto& inputs = inputs_[tile];
  const std::int64_t chunks = header_.chunks_per_block;
  const auto input = [&](int source, std::int64_t at) {
    return inputs.at(source)[static_cast<std::size_t>(at)];
  };
  const auto sum = [&](std::int64_t at) {
    Chunk total(input(0, at).size());
    for (int source = 0; source < header_.ranks; ++source)
      for (std::size_t e = 0; e < total.size(); ++e)
        total[e].sum += input(source, at)[e].sum * factors_[static_cast<std::size_t>(source)];
    return total;
  };
  switch (header_.collective) {
    case Collective::all_reduce:
      return sum(chunk);
    case Collective::reduce:
      if (rank == header_.root) return sum(chunk);
      return std::nullopt;
    case Collective::reduce_scatter:
      return sum(rank * chunks + chunk);
    case Collective::all_gather:
      return input(static_cast<int>(chunk / chunks), chunk % chunks);
    case Collective::gather:
      if (rank == header_.root) return input(static_cast<int>(chunk / chunks), chunk % chunks);
      return std::nullopt;
    case Collective::broadcast:
      return input(header_.root, chunk);
    case Collective::scatter:
      return input(header_.root, rank * chunks + chunk);
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      return input(static_cast<int>(chunk / chunks), rank * chunks + chunk % chunks);
    default:
      return std::nullopt;
  }
}

std::optional<std::string> Run::judge_barrier(int asleep) {
  for (int rank = 0; rank < header_.ranks; ++rank) {
    if (rank == asleep) continue;
    bool all_ended = true;
    for (std::size_t i = first_block_[static_cast<std::size_t>(rank)];
         i < first_block_[static_cast<std::size_t>(rank) + 1]; ++i)
      all_ended = all_ended && (ended(i) || blocks_[i].tile > 0);
    if (all_ended)
      return str("rank ", rank, " left the barrier before rank ", asleep, " came to it");
  }
  return std::nullopt;
}

}  // namespace unisono::test::interpreter
