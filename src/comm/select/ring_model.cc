#include <algorithm>
#include <array>

#include "base/str.h"
#include "comm/select/engine_model.h"
#include "device/program.h"

namespace unisono::comm {
namespace {

// Measured on 2 H200 set apart as two hosts, over TCP (bench/results/gpu_hosts_2.txt). Only in
// proportion for other networks.
constexpr double hop_us = 40;
// The forwarder takes a message of each sending thread block in turn, and one that comes back.
constexpr double forwarded_us = 10;
// A thread of the host copies each byte; a thread block waits for each slot.
constexpr double forwarder_ns_per_byte = 0.22;
constexpr double block_ns_per_byte = 0.12;

// Kernels as inside a host, and the messages between nodes.
class RingModel final : public EngineModel {
 public:
  explicit RingModel(std::shared_ptr<const EngineModel> device) : device_(std::move(device)) {}

  std::string_view name() const override { return device_->name(); }
  bool runs(const algorithm::Entry& entry, const algorithm::Request& request) const override {
    // A launch has room for the counts of so many.
    if (request.collective == Collective::all_to_all_v &&
        request.placement.ranks() > device::max_uneven_ranks)
      return false;
    return device_->runs(entry, in_simple(request));
  }
  trace::ChosenPath path(const PlanToRun& plan) const override {
    PlanToRun made = plan;
    made.request = in_simple(plan.request);
    return device_->path(made);
  }
  std::string note(const PlanToRun& plan) const override {
    return str("Kernels run the plan; between hosts a thread forwards their messages",
               plan.request.protocol == Protocol::simple ? "" : ", in protocol simple");
  }
  // One forwarder serves all channels.
  std::span<const int> channels() const override {
    static constexpr std::array tried{1, 2, 4, 8};
    return tried;
  }
  double time_us(const algorithm::Entry& entry, const algorithm::Request& wanted,
                 const algorithm::Cost& cost, double block_bytes,
                 const CallOptions& options) const override {
    const algorithm::Request request = in_simple(wanted);
    const auto blocks = static_cast<double>(device_->sending_blocks(entry, request));
    const auto steps = static_cast<double>(cost.steps_inter_node);
    const double messages =
        std::max(request.channels * static_cast<double>(cost.messages_inter_node), blocks * steps);
    // What is as fast by another name is chosen by its own.
    const double renamed_us = wanted.protocol == Protocol::simple ? 0 : 1;
    return device_->time_us(entry, request, cost, block_bytes, options) + renamed_us +
           hop_us * steps + forwarded_us * messages +
           1e-3 * cost.bytes_sent_inter_node * (forwarder_ns_per_byte + block_ns_per_byte / blocks);
  }
  int thread_blocks(const algorithm::Entry& entry, const algorithm::Request& request,
                    double block_bytes) const override {
    return device_->thread_blocks(entry, in_simple(request), block_bytes);
  }

 private:
  // The size of a message is stored apart from its bytes, so each protocol's plans run in Simple.
  static algorithm::Request in_simple(algorithm::Request request) {
    request.protocol = Protocol::simple;
    return request;
  }

  std::shared_ptr<const EngineModel> device_;
};

}  // namespace

std::shared_ptr<const EngineModel> ring_model(const engine::gpu::Options& options,
                                              int thread_blocks, engine::gpu::Paths paths) {
  return std::make_shared<RingModel>(device_model(options, thread_blocks, std::move(paths)));
}

}  // namespace unisono::comm
