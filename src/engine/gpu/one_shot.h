// The plan one_shot_all_reduce in protocol LL by a kernel of its own (device/kernels/one_shot.cuh):
// the same sums in the same order as the interpreted plan, without steps.
#pragma once

#include <unisono/result.h>

#include <vector>

#include "engine/gpu/execution.h"

namespace unisono::engine::gpu {

class OneShot {
 public:
  // Whether the kernel does what this plan says.
  static bool implements(const plan::Header& header);

  OneShot(const plan::Header& header, int rank) : ranks_(header.ranks), rank_(rank) {}

  // Whether a call is small enough; the same on all ranks.
  static bool serves(const Arguments& arguments);
  // Whether all is there; false, and `waiting` says for whom, while connections are being made.
  Result<bool> connect(Resources& resources, Waiting& waiting);
  Status launch(Resources& resources, const Arguments& arguments,
                const device::Arithmetic& arithmetic) const;

 private:
  int ranks_;
  int rank_;
  std::vector<transport::Connection*> links_;  // by rank; null for the own one
  bool is_connected_ = false;
};

}  // namespace unisono::engine::gpu
