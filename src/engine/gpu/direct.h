// Plans of one hop between all ranks in protocol LL, and the all-reduce of two, by kernels of their
// own (device/kernels/direct.cuh): the same data, and the same sums in the same order, as the
// interpreted plan gives, without steps.
#pragma once

#include <unisono/result.h>

#include <optional>
#include <vector>

#include "engine/gpu/execution.h"

namespace unisono::engine::gpu {

// Thread blocks that such a call of `bytes` to each rank in a hop needs, to keep what is on the
// way.
int direct_least_blocks(device::DirectKind kind, std::size_t bytes, int ranks);

class Direct {
 public:
  // Of a plan that the kernel does as it says; nothing for others.
  static std::optional<Direct> of(const plan::Header& header, int rank);

  // Whether a call is small enough; the same on all ranks.
  bool serves(const Arguments& arguments) const;
  // Whether all is there; false, and `waiting` says for whom, while connections are being made.
  Result<bool> connect(Resources& resources, Waiting& waiting);
  Status launch(Resources& resources, const Arguments& arguments,
                const device::Arithmetic& arithmetic) const;

 private:
  Direct(const plan::Header& header, device::DirectKind kind, int rank)
      : collective_(header.collective),
        kind_(kind),
        ranks_(header.ranks),
        rank_(rank),
        root_(header.root) {}
  bool sends_one_way() const { return collective_ == Collective::broadcast; }
  int channel() const;
  // To each rank in a hop.
  std::int64_t hop_bytes(const Arguments& arguments) const;
  void set_buffers(const Arguments& arguments, device::DirectLaunch& launch) const;

  Collective collective_;
  device::DirectKind kind_;
  int ranks_;
  int rank_;
  int root_;
  std::vector<transport::Connection*> links_;  // by rank; null for the own one
  bool is_connected_ = false;
};

// By name: how Direct does this plan in LL on so many ranks, if it does.
std::optional<device::DirectKind> direct_kind(Collective collective, std::string_view algorithm,
                                              int ranks);

}  // namespace unisono::engine::gpu
