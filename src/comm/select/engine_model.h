// What selection knows of an engine: which plans it runs, and what they cost there.
#pragma once

#include <unisono/explanation.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "algorithm/algorithm.h"
#include "comm/job/host_traits.h"
#include "comm/select/cost_model.h"
#include "engine/gpu/execution.h"
#include "transport/fifo.h"

namespace unisono::comm {

struct Registered;

// A plan, for blocks of so many bytes: the algorithm's, or the registered one.
struct PlanToRun {
  const algorithm::Entry* entry;
  const Registered* registered;
  algorithm::Request request;
  double block_bytes;
  ExplainOptions call = {};  // what the path depends on beside the plan
};

class EngineModel {
 public:
  virtual ~EngineModel() = default;
  // As rows of a selection file name it: "host", "gpu"; "copy" has none.
  virtual std::string_view name() const = 0;
  // Whether the engine runs a request that the entry supports.
  virtual bool runs(const algorithm::Entry& entry, const algorithm::Request& request) const = 0;
  // Why no call may use a protocol, on all ranks alike; "" where calls may.
  virtual std::string why_not(Protocol /*protocol*/) const { return {}; }
  // How it carries a call: what its executions say, without one; in place, what a launch then does.
  virtual trace::ChosenPath path(const PlanToRun& plan) const = 0;
  // For a person: why so, and what holds for its calls; nothing where there is nothing to say.
  virtual std::string note(const PlanToRun& /*plan*/) const { return {}; }
  // How many channels are worth trying.
  virtual std::span<const int> channels() const = 0;
  // For blocks of `block_bytes`, of calls with that limit on SMs. Right in proportion.
  virtual double time_us(const algorithm::Entry& entry, const algorithm::Request& request,
                         const algorithm::Cost& cost, double block_bytes,
                         const CallOptions& options) const = 0;
  // The most SMs that it takes where it takes as few as it can; none on a host.
  virtual int thread_blocks(const algorithm::Entry& entry, const algorithm::Request& request,
                            double block_bytes) const = 0;
  // How many thread blocks of a rank send messages.
  virtual int sending_blocks(const algorithm::Entry&, const algorithm::Request&) const { return 1; }
  // The SM budget of a call that computation overlaps with; 0: no limit.
  virtual int overlap_thread_blocks(Collective, int /*ranks*/, double /*block_bytes*/) const {
    return 0;
  }
};

std::shared_ptr<const EngineModel> host_model(const transport::FifoOptions& fifo_options,
                                              const HostTraits& host = {},
                                              const CostModel& costs = host_cost_model());
// The model of devices that run `thread_blocks` at once, with the rows that choose each call's
// kernel. `why_no_ll128` is the engine's.
std::shared_ptr<const EngineModel> device_model(const engine::gpu::Options& options,
                                                int thread_blocks, engine::gpu::Paths paths,
                                                std::string why_no_ll128 = {});
// The most thread blocks that a rank's GPU runs of a plan inside its node, on all ranks alike; 0:
// all of the plan is staged.
using BlocksInside =
    std::function<int(const algorithm::Entry& entry, const algorithm::Request& request)>;
// The model of calls on GPUs of which some do not reach each other: `host` and copies from and to
// the devices. Without `blocks_inside`, all of every plan is staged. `why_no_ll128` is the
// engine's: inside nodes GPUs run the plan's protocol.
std::shared_ptr<const EngineModel> staged_model(std::shared_ptr<const EngineModel> host,
                                                BlocksInside blocks_inside,
                                                std::string why_no_ll128 = {});
// The model of devices of which some exchange messages over ring links, whatever a plan's protocol
// in protocol Simple.
std::shared_ptr<const EngineModel> ring_model(const engine::gpu::Options& options,
                                              int thread_blocks, engine::gpu::Paths paths);
// The model of the copy engines, for policy zero_sm.
std::shared_ptr<const EngineModel> copy_model(const engine::gpu::CopyLinks::Options& options);

}  // namespace unisono::comm
