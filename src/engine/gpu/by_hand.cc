#include "engine/gpu/by_hand.h"

#include "base/try.h"
#include "engine/gpu/direct.h"
#include "engine/gpu/lines.h"

namespace unisono::engine::gpu {

device::DataKind data_kind(std::uint64_t all, std::size_t grain, int ranks, bool adds,
                           const device::Arithmetic& arithmetic) {
  using enum device::DataKind;
  if (all % grain != 0 || ranks > device::max_plain_ranks || arithmetic.scales_input != 0)
    return any;
  if (!adds) return plain;
  if (static_cast<device::Combine>(arithmetic.combine) != device::Combine::sum) return any;
  if ((arithmetic.divisor & (arithmetic.divisor - 1)) != 0) return any;
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

std::unique_ptr<ByHand> make_by_hand(const plan::Header& header, int rank,
                                     const algorithm::Entry* reference) {
  if (reference == nullptr || header.channels != 1) return nullptr;
  if (header.protocol == Protocol::ll) return Direct::make(header, rank, *reference);
  if (header.protocol == Protocol::ll128) return Lines::make(header, rank, *reference);
  return nullptr;
}

Result<bool> ByHand::connect(Resources& resources, const Arguments& arguments, Waiting& waiting) {
  prepare(resources.engine(), arguments);
  const int channel = this->channel(resources.engine(), arguments);
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
  return complete;
}

}  // namespace unisono::engine::gpu
