// Plans in protocol LL by kernels of their own (device/kernels/ll_all_pairs.cuh), for 2 to 8 ranks:
//   take      one hop, of whole blocks, to any ranks; nothing is added
//   combine   one hop, of whole blocks; some ranks, or all, add all ranks' blocks, in turn
//   two_shot  two hops, of 3 ranks or more: each adds its segment, and all get all segments
#pragma once

#include <optional>

#include "engine/gpu/specialised_kernel.h"

namespace unisono::engine::gpu {

// Thread blocks that such a call of `bytes` to each rank in a hop needs, to keep what is on the
// way.
int ll_least_blocks(device::LlKind kind, std::size_t bytes, int ranks);
// The path of a call that sends `bytes` to each rank in a hop. Each thread has one unit, in small
// thread blocks, until the grid is as large as it may be.
trace::ChosenPath ll_path(device::LlKind kind, std::size_t bytes, int ranks,
                          const CallOptions& options);

class LlAllPairs : public SpecialisedKernel {
 public:
  // Null for plans that the kernel does not do as they say.
  static std::unique_ptr<SpecialisedKernel> make(const plan::Header& header, int rank,
                                                 std::shared_ptr<const plan::Exchange> exchange);

  // Whether a call is small enough.
  bool serves(const Arguments& arguments) const override;
  trace::ChosenPath path(const Engine&, const Arguments& arguments) const override {
    return ll_path(kind_, static_cast<std::size_t>(longest_bytes(arguments)), ranks_,
                   arguments.options);
  }
  Status launch(const Engine& engine, LaunchScope& scope, const Arguments& arguments,
                const device::Arithmetic& arithmetic, const device::Stamp& stamp,
                bool is_repeated) override;

 private:
  LlAllPairs(const plan::Header& header, int rank, std::shared_ptr<const plan::Exchange> exchange,
             device::LlKind kind)
      : SpecialisedKernel(header, rank, std::move(exchange)), kind_(kind) {}
  int channel(const Arguments& arguments) const override;
  transport::Geometry geometry(int channel) const override;
  void set_buffers(const Arguments& arguments, device::LlLaunch& launch) const;
  void prepare_all(const Engine& engine);
  void prepare(const Engine& engine, const Arguments& arguments,
               const device::Arithmetic& arithmetic);

  device::LlKind kind_;
  // The last call's.
  device::LlLaunch launch_{};
  const sys::cuda::Kernel* kernel_ = nullptr;
  unsigned threads_ = 0;
};

// How LlAllPairs does plans in LL of that exchange, if it does.
std::optional<device::LlKind> ll_kind(const plan::Exchange& exchange);

}  // namespace unisono::engine::gpu
