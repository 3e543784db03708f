#include "engine/gpu/specialised_kernel.h"

#include <algorithm>

#include "base/try.h"
#include "engine/gpu/ll128_all_pairs.h"
#include "engine/gpu/ll_all_pairs.h"

namespace unisono::engine::gpu {

device::DataKind data_kind(std::uint64_t all, std::size_t grain, int ranks, bool adds,
                           const device::Arithmetic& arithmetic) {
  using enum device::DataKind;
  const bool has_any_factor = arithmetic.scales_input != 0 && arithmetic.halvings == 0;
  if (all % grain != 0 || ranks > device::max_plain_ranks || has_any_factor) return any;
  if (!adds) return plain;
  if (static_cast<device::Combine>(arithmetic.combine) != device::Combine::sum) return any;
  switch (static_cast<DataType>(arithmetic.type)) {
    case DataType::float16:
      return float16;
    case DataType::bfloat16:
      return bfloat16;
    case DataType::float32:
      return float32;
    default:
      return any;
  }
}

SpecialisedKernel::Span::Span(const plan::Chunks& chunks, int chunks_per_block)
    : begin_block_(chunks.first / chunks_per_block),
      begin_chunk_(chunks.first % chunks_per_block),
      end_block_((chunks.first + chunks.count) / chunks_per_block),
      end_chunk_((chunks.first + chunks.count) % chunks_per_block) {}

SpecialisedKernel::SpecialisedKernel(const plan::Header& header, int rank,
                                     std::shared_ptr<const plan::Exchange> exchange)
    : collective_(header.collective),
      ranks_(header.ranks),
      rank_(rank),
      protocol_(header.protocol),
      exchange_(std::move(exchange)),
      // The first chunks are the longest.
      longest_({0, exchange_->longest_message()}, exchange_->chunks_per_block),
      is_one_way_(exchange_->is_one_way()) {
  for (const plan::Chunks& chunks : own_part().gives)
    gives_.emplace_back(chunks, exchange_->chunks_per_block);
  for (const plan::Chunks& chunks : own_part().takes)
    takes_.emplace_back(chunks, exchange_->chunks_per_block);
}

bool is_carried(const plan::Exchange& exchange) {
  return exchange.has_equal_blocks && exchange.longest_message() > 0 && exchange.size() >= 2 &&
         exchange.size() <= device::all_pairs_max_ranks;
}

bool adds_all_in_turn(const plan::Exchange& exchange) {
  return std::ranges::all_of(exchange.ranks, [&](const plan::RankExchange& rank) {
    const auto follows = [&](int a, int b) { return (a + 1) % exchange.size() != b; };
    return rank.adds.empty() || (std::ssize(rank.adds) == exchange.size() &&
                                 std::ranges::adjacent_find(rank.adds, follows) == rank.adds.end());
  });
}

bool adds_own_first(const plan::Exchange& exchange) {
  if (!adds_all_in_turn(exchange)) return false;
  if (exchange.size() == 2) return true;
  for (int rank = 0; rank < exchange.size(); ++rank) {
    const auto& adds = exchange.part(rank).adds;
    if (!adds.empty() && adds.front() != rank) return false;
  }
  return true;
}

std::unique_ptr<SpecialisedKernel> make_specialised_kernel(
    const plan::Header& header, int rank, std::shared_ptr<const plan::Exchange> exchange) {
  if (exchange == nullptr) return nullptr;
  if (header.protocol == Protocol::ll) return LlAllPairs::make(header, rank, std::move(exchange));
  if (header.protocol == Protocol::ll128)
    return Ll128AllPairs::make(header, rank, std::move(exchange));
  return nullptr;
}

Result<bool> SpecialisedKernel::connect(Resources& resources, const Arguments& arguments,
                                        Waiting& waiting) {
  const int channel = this->channel(arguments);
  if (channel == connected_channel_) return true;
  auto& links = links_[channel];
  links.resize(static_cast<std::size_t>(ranks_));
  bool complete = true;
  for (int peer = 0; peer < ranks_; ++peer) {
    auto& link = links[static_cast<std::size_t>(peer)];
    if (peer == rank_ || link != nullptr) continue;
    UNISONO_ASSIGN(link, resources.link({peer, channel, protocol_, geometry(channel)}));
    if (link != nullptr) continue;
    complete = false;
    waiting = {.kind = Waiting::Kind::connection, .peer = peer, .channel = channel};
  }
  if (complete) {
    connected_channel_ = channel;
    connected_links_ = &links;
  }
  return complete;
}

}  // namespace unisono::engine::gpu
