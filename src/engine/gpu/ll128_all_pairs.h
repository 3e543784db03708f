// Plans in protocol LL128, of calls of any size, by a kernel of their own
// (device/kernels/ll128_all_pairs.cuh), for 2 to 8 ranks; of some large calls, and of those that
// a small grid serves, by bulk copies (device/kernels/tma_bulk.cuh). Carried are
//   one hop   of whole blocks, to any ranks; some ranks, or all, add different blocks of all ranks
//   two hops  of segments: each rank that has one adds it up, or gets it from one, and sends it on
// Where ranks add, each begins with its own data and goes on in turn.
#pragma once

#include "engine/gpu/specialised_kernel.h"

namespace unisono::engine::gpu {

class StreamQueue;

// The channel of connections for bulk copies on a small grid. Their regions are a
// device::Ll128Region and slots for that grid.
inline constexpr int bulk_channel = ll128_channel + 3;

// Whether Ll128AllPairs does plans in LL128 of that exchange, and in how many hops; 0: it does not.
int ll128_hops(const plan::Exchange& exchange);

// The path of a call with its longest message of so many bytes, as a row or none chose it. `adds`:
// it sums.
trace::ChosenPath ll128_path(const PathChoice& chosen, std::int64_t longest, int ranks, bool adds,
                             const CallOptions& options);
// What runs on so many thread blocks instead of a path that peers' buffers rule out.
trace::ChosenPath ll128_fallback(int thread_blocks);

class Ll128AllPairs : public SpecialisedKernel {
 public:
  // Null for plans that the kernel does not do as they say.
  static std::unique_ptr<SpecialisedKernel> make(const plan::Header& header, int rank,
                                                 std::shared_ptr<const plan::Exchange> exchange);

  bool serves(const Arguments& arguments) const override { return block_bytes(arguments) > 0; }
  trace::ChosenPath path(const Engine& engine, const Arguments& arguments) const override {
    return ll128_path(choose(engine, arguments), longest_bytes(arguments), ranks_,
                      is_reduction(collective_), arguments.options);
  }
  Status launch(const Engine& engine, LaunchScope& scope, const Arguments& arguments,
                const device::Arithmetic& arithmetic, const device::Stamp& stamp,
                bool is_repeated) override;

 private:
  Ll128AllPairs(const plan::Header& header, int rank,
                std::shared_ptr<const plan::Exchange> exchange);
  int channel(const Arguments& arguments) const override;
  transport::Geometry geometry(int channel) const override;
  PathChoice choose(const Engine& engine, const Arguments& arguments) const;
  trace::Fallback set_peer_buffers(LaunchScope& scope, const Arguments& arguments,
                                   device::Ll128Launch& launch) const;
  // Who sends what to whom; of every call the same.
  void find_sets();
  void find_bulk_flows();
  int only_giver() const;
  void set_buffers(const Arguments& arguments, device::Ll128Launch& launch) const;
  void prepare(const Engine& engine, LaunchScope& scope, const Arguments& arguments,
               const device::Arithmetic& arithmetic);
  void stand_by_distance(device::Ll128Launch& launch) const;
  device::DataKind kind_of_data(const device::Ll128Launch& launch) const;
  void set_flows(const Arguments& arguments, device::BulkLaunch& launch) const;
  Status copy_own_concurrently(StreamQueue& queue, const Arguments& arguments,
                               device::BulkLaunch& launch) const;
  trace::Fallback set_bulk_peer_buffers(LaunchScope& scope, const void* data, std::int64_t bytes,
                                        std::uint64_t (&views)[device::all_pairs_max_ranks]) const;
  trace::Fallback set_bulk_buffers(const Engine& engine, LaunchScope& scope,
                                   const Arguments& arguments, device::BulkLaunch& launch) const;
  Status launch_in_bulk(const Engine& engine, LaunchScope& scope, const Arguments& arguments,
                        const device::Ll128Launch& lines) const;

  // As bits: ranks that get what this one gives, whose parts it keeps of its own input, whose data
  // make its result, that get the result, and whose data it stores.
  struct Sets {
    unsigned sends = 0;
    unsigned local_copies = 0;
    unsigned adds = 0;
    unsigned forwards = 0;
    unsigned receives = 0;
  };
  // What is copied from the same place of each source, or added up, to the same place of each rank.
  struct Flow {
    Span source;
    Span destination;
    unsigned ranks;
  };

  Sets sets_;
  // Calls are in place, and what peers store directly may overwrite what they have still to read.
  bool overwrites_;
  unsigned bulk_sources_ = 0;
  std::vector<Flow> flows_;
  // The last call's.
  device::Ll128Launch launch_{};
  const sys::cuda::Kernel* kernel_ = nullptr;
  unsigned threads_ = 0;
  // The blocks of this rank's buffers in a call out of place.
  int input_blocks_;
  int output_blocks_;
};

}  // namespace unisono::engine::gpu
