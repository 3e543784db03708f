// Plans between all ranks in protocol LL128, of calls of any size, by a kernel of their own
// (device/kernels/lines.cuh).
#pragma once

#include "engine/gpu/by_hand.h"

namespace unisono::engine::gpu {

// By name: whether Lines does this plan on so many ranks, and in how many hops; 0: it does not.
int lines_hops(Collective collective, std::string_view algorithm, int ranks);

// Whether large calls are stored straight where they are wanted, where that can be reached.
bool lines_may_post(Collective collective, int hops);

class Lines : public ByHand {
 public:
  // Null for plans that the kernel does not do as they say.
  static std::unique_ptr<ByHand> make(const plan::Header& header, int rank);

  bool serves(const Arguments& arguments) const override { return block_bytes(arguments) > 0; }
  Status launch(Resources& resources, const Arguments& arguments,
                const device::Arithmetic& arithmetic) const override;

 private:
  Lines(const plan::Header& header, int rank, int hops) : ByHand(header, rank), hops_(hops) {}
  int channel(const Engine& engine, const Arguments& arguments) const override;
  transport::Geometry geometry() const override;
  // Some send to ranks of which they hear nothing; or, where it posts, all may.
  bool is_one_way() const;
  bool posts(const Engine& engine, const Arguments& arguments) const;
  void set_views(Resources& resources, const Arguments& arguments,
                 device::LinesLaunch& launch) const;
  // As bits.
  unsigned others() const { return ((1U << ranks_) - 1) & ~(1U << rank_); }
  void set_one_hop(const Arguments& arguments, device::LinesLaunch& launch) const;
  void set_segments(const Arguments& arguments, device::LinesLaunch& launch) const;
  void set_two_hops(const Arguments& arguments, device::LinesLaunch& launch) const;
  void stand_by_distance(device::LinesLaunch& launch) const;

  int hops_;
};

}  // namespace unisono::engine::gpu
