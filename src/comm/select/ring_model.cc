#include <algorithm>
#include <array>

#include "comm/select/engine_model.h"

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
    return request.protocol == Protocol::simple && device_->runs(entry, request);
  }
  std::string why_not(Protocol protocol) const override {
    if (protocol == Protocol::simple) return {};
    return "messages of kernels to other hosts use the protocol simple";
  }
  trace::ChosenPath path(const PlanToRun& plan) const override { return device_->path(plan); }
  std::string note(const PlanToRun&) const override {
    return "Kernels run the plan; between hosts a thread forwards their messages";
  }
  // One forwarder serves all channels.
  std::span<const int> channels() const override {
    static constexpr std::array tried{1, 2, 4, 8};
    return tried;
  }
  double time_us(const algorithm::Entry& entry, const algorithm::Request& request,
                 const algorithm::Cost& cost, double block_bytes,
                 const CallOptions& options) const override {
    const auto blocks = static_cast<double>(device_->sending_blocks(entry, request));
    const auto steps = static_cast<double>(cost.steps_inter_node);
    const double messages =
        std::max(request.channels * static_cast<double>(cost.messages_inter_node), blocks * steps);
    return device_->time_us(entry, request, cost, block_bytes, options) + hop_us * steps +
           forwarded_us * messages +
           1e-3 * cost.bytes_sent_inter_node * (forwarder_ns_per_byte + block_ns_per_byte / blocks);
  }
  int thread_blocks(const algorithm::Entry& entry, const algorithm::Request& request,
                    double block_bytes) const override {
    return device_->thread_blocks(entry, request, block_bytes);
  }

 private:
  std::shared_ptr<const EngineModel> device_;
};

}  // namespace

std::shared_ptr<const EngineModel> ring_model(const engine::gpu::Options& options,
                                              int thread_blocks, engine::gpu::Paths paths) {
  return std::make_shared<RingModel>(device_model(options, thread_blocks, std::move(paths)));
}

}  // namespace unisono::comm
