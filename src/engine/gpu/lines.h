// Plans between all ranks in protocol LL128, of calls of any size, by a kernel of their own
// (device/kernels/lines.cuh); of some large calls, and of those that few thread blocks serve, by
// bulk copies (device/kernels/bulk.cuh).
#pragma once

#include "engine/gpu/by_hand.h"

namespace unisono::engine::gpu {

class StreamQueue;

// Of connections for bulk copies in calls of few thread blocks, whose regions are a
// device::LinesRegion and slots for so many.
inline constexpr int bulk_channel = lines_channel + 3;

// Whether Lines does that algorithm's plans on so many ranks, and in how many hops; 0: it does not.
int lines_hops(const algorithm::Entry& reference, int ranks);

// Thread blocks of a call whose longest message is so long, of those that it may have.
int lines_blocks(std::int64_t longest, int most);

class Lines : public ByHand {
 public:
  // Null for plans that the kernel does not do as they say.
  static std::unique_ptr<ByHand> make(const plan::Header& header, int rank,
                                      const algorithm::Entry& reference);

  bool serves(const Arguments& arguments) const override { return block_bytes(arguments) > 0; }
  Path path(const Engine& engine, const Arguments& arguments) const override {
    return choose(engine, arguments).path;
  }
  Status launch(Resources& resources, const Arguments& arguments,
                const device::Arithmetic& arithmetic) const override;

 private:
  Lines(const plan::Header& header, int rank, int hops);
  void prepare(const Engine& engine, const Arguments& arguments) override {
    chosen_ = choose(engine, arguments);
  }
  int channel(const Engine& engine, const Arguments& arguments) const override;
  transport::Geometry geometry(int channel) const override;
  // Some send to ranks of which they hear nothing; or, where it posts, all may.
  bool is_one_way() const;
  // Of the block, or of two hops of the longest segment.
  std::int64_t longest_bytes(const Arguments& arguments) const;
  PathChoice choose(const Engine& engine, const Arguments& arguments) const;
  void set_views(Resources& resources, const Arguments& arguments,
                 device::LinesLaunch& launch) const;
  // As bits.
  unsigned others() const { return ((1U << ranks_) - 1) & ~(1U << rank_); }
  void set_one_hop(const Arguments& arguments, device::LinesLaunch& launch) const;
  void set_segments(const Arguments& arguments, device::LinesLaunch& launch) const;
  void set_two_hops(const Arguments& arguments, device::LinesLaunch& launch) const;
  void stand_by_distance(device::LinesLaunch& launch) const;
  device::DataKind kind_of_data(const device::LinesLaunch& launch) const;
  void set_flows(const Arguments& arguments, device::BulkLaunch& launch) const;
  Status keep_beside(StreamQueue& queue, const Arguments& arguments,
                     device::BulkLaunch& launch) const;
  bool set_bulk_views(Resources& resources, const void* data, std::int64_t bytes,
                      std::uint64_t (&views)[device::direct_max_ranks]) const;
  bool set_buffers(Resources& resources, const Arguments& arguments,
                   device::BulkLaunch& launch) const;
  Status launch_in_bulk(Resources& resources, const Arguments& arguments,
                        const device::LinesLaunch& lines) const;
  int segments_of_block() const { return has_root(collective_) ? ranks_ - 1 : ranks_; }

  int hops_;
  PathChoice chosen_;  // of the call that was prepared last
  // Of this rank's buffers, where the call is not in place.
  int input_blocks_;
  int output_blocks_;
};

}  // namespace unisono::engine::gpu
