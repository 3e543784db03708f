// Plans in protocol LL by kernels of their own (device/kernels/direct.cuh), for 2 to 8 ranks:
//   take      one hop, of whole blocks, to any ranks; nothing is added
//   combine   one hop, of whole blocks; some ranks, or all, add all ranks' blocks, in turn
//   two_shot  two hops, of 3 ranks or more: each adds its segment, and all get all segments
#pragma once

#include <optional>

#include "engine/gpu/by_hand.h"

namespace unisono::engine::gpu {

// Thread blocks that such a call of `bytes` to each rank in a hop needs, to keep what is on the
// way.
int direct_least_blocks(device::DirectKind kind, std::size_t bytes, int ranks);

class Direct : public ByHand {
 public:
  // Null for plans that the kernel does not do as they say.
  static std::unique_ptr<ByHand> make(const plan::Header& header, int rank,
                                      std::shared_ptr<const plan::Exchange> exchange);

  // Whether a call is small enough.
  bool serves(const Arguments& arguments) const override;
  Path path(const Engine&, const Arguments&) const override { return Path::ll_all_pairs; }
  Status launch(Resources& resources, const Arguments& arguments,
                const device::Arithmetic& arithmetic) const override;

 private:
  Direct(const plan::Header& header, int rank, std::shared_ptr<const plan::Exchange> exchange,
         device::DirectKind kind)
      : ByHand(header, rank, std::move(exchange)), kind_(kind) {}
  int channel(const Engine& engine, const Arguments& arguments) const override;
  transport::Geometry geometry(int channel) const override;
  void set_buffers(const Arguments& arguments, device::DirectLaunch& launch) const;

  device::DirectKind kind_;
};

// How Direct does plans in LL of that exchange, if it does.
std::optional<device::DirectKind> direct_kind(const plan::Exchange& exchange);

}  // namespace unisono::engine::gpu
