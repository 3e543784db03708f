// Plans of one hop between all ranks in protocol LL, and the all-reduce of two, by kernels of their
// own (device/kernels/direct.cuh).
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
                                      const algorithm::Entry& reference);

  // Whether a call is small enough.
  bool serves(const Arguments& arguments) const override;
  Path path(const Engine&, const Arguments&) const override { return Path::ll_all_pairs; }
  Status launch(Resources& resources, const Arguments& arguments,
                const device::Arithmetic& arithmetic) const override;

 private:
  Direct(const plan::Header& header, device::DirectKind kind, int rank)
      : ByHand(header, rank), kind_(kind) {}
  bool sends_one_way() const { return has_root(collective_); }
  int channel(const Engine& engine, const Arguments& arguments) const override;
  transport::Geometry geometry(int channel) const override;
  // To each rank in a hop.
  std::int64_t hop_bytes(const Arguments& arguments) const;
  void set_buffers(const Arguments& arguments, device::DirectLaunch& launch) const;

  device::DirectKind kind_;
};

// How Direct does that algorithm's plans in LL on so many ranks, if it does.
std::optional<device::DirectKind> direct_kind(const algorithm::Entry& reference, int ranks);

}  // namespace unisono::engine::gpu
