#include "comm/select/engine_model.h"

namespace unisono::comm {
namespace {

// Only in proportion: a message goes through the host's memory at both ends and a thread that
// polls, then over a network of 100 Gbit/s.
constexpr double message_us = 30;
constexpr double network_gb_per_s = 10;

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
  std::span<const int> channels() const override { return device_->channels(); }
  double time_us(const algorithm::Entry& entry, const algorithm::Request& request,
                 const algorithm::Cost& cost, double block_bytes,
                 const CallOptions& options) const override {
    return device_->time_us(entry, request, cost, block_bytes, options) +
           message_us * static_cast<double>(cost.steps_inter_node) +
           1e-3 * cost.bytes_sent_inter_node / network_gb_per_s;
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
