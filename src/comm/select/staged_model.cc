#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "base/str.h"
#include "comm/select/engine_model.h"

namespace unisono::comm {
namespace {

// Only in proportion: copies from and to page-locked memory over PCIe, each with what the host
// needs to see its end, and what a GPU's kernel takes inside a node, as DeviceModel says.
constexpr double copy_gb_per_s = 20;
constexpr double copies_us = 20;
constexpr double phase_us = 4;
constexpr double hop_us = 5;
constexpr double link_gb_per_s = 100;

double us_of(double bytes, double gb_per_s) { return 1e-3 * bytes / gb_per_s; }

// The part of a plan's cost that is between nodes.
algorithm::Cost between_nodes(const algorithm::Cost& cost) {
  algorithm::Cost out;
  out.steps = out.steps_inter_node = cost.steps_inter_node;
  out.messages = out.messages_inter_node = cost.messages_inter_node;
  out.messages_of_all = out.messages_of_all_inter_node = cost.messages_of_all_inter_node;
  out.bytes_sent = out.bytes_sent_inter_node = cost.bytes_sent_inter_node;
  out.bytes_filling = out.bytes_filling_inter_node = cost.bytes_filling_inter_node;
  out.bytes_reduced = std::min(cost.bytes_reduced, cost.bytes_sent_inter_node);
  out.exact = cost.exact;
  return out;
}

class StagedModel final : public EngineModel {
 public:
  StagedModel(std::shared_ptr<const EngineModel> host, BlocksInside blocks_inside,
              std::string why_no_ll128)
      : host_(std::move(host)),
        blocks_inside_(std::move(blocks_inside)),
        why_no_ll128_(std::move(why_no_ll128)) {}

  std::string_view name() const override { return host_->name(); }
  std::string why_not(Protocol protocol) const override {
    return protocol == Protocol::ll128 && blocks_inside_ ? why_no_ll128_ : std::string();
  }
  bool runs(const algorithm::Entry& entry, const algorithm::Request& request) const override {
    return host_->runs(entry, request);
  }
  std::span<const int> channels() const override { return host_->channels(); }
  trace::ChosenPath path(const PlanToRun& plan) const override {
    trace::ChosenPath path = host_->path(plan);
    path.thread_blocks = plan.registered == nullptr ? blocks(*plan.entry, plan.request) : 0;
    path.variant = path.thread_blocks > 0 ? trace::Path::mixed : trace::Path::staged;
    return path;
  }
  std::string note(const PlanToRun& plan) const override {
    std::string of_host = host_->note(plan);
    if (!blocks_inside_) return of_host;
    const bool is_mixed = path(plan).variant == trace::Path::mixed;
    return str(is_mixed ? "Inside a node GPUs move the data of this plan themselves"
                        : "All of this plan is staged: it has no phase inside nodes",
               of_host.empty() ? "" : "; ", of_host);
  }
  double time_us(const algorithm::Entry& entry, const algorithm::Request& request,
                 const algorithm::Cost& cost, double block_bytes,
                 const CallOptions& options) const override {
    if (blocks(entry, request) == 0) {
      const plan::Header header = entry.header(request);
      return host_->time_us(entry, request, cost, block_bytes, options) + copies_us +
             us_of(block_bytes * (header.input_blocks + header.output_blocks), copy_gb_per_s);
    }
    const double bytes_inside = cost.bytes_sent - cost.bytes_sent_inter_node;
    return host_->time_us(entry, request, between_nodes(cost), block_bytes, options) + copies_us +
           us_of(2 * cost.bytes_sent_inter_node, copy_gb_per_s) + 2 * phase_us +
           hop_us * static_cast<double>(cost.steps - cost.steps_inter_node) +
           us_of(bytes_inside, link_gb_per_s);
  }
  int thread_blocks(const algorithm::Entry& entry, const algorithm::Request& request,
                    double) const override {
    return blocks(entry, request);
  }

 private:
  // Models are asked often, and of all protocols, which thread blocks do not depend on.
  int blocks(const algorithm::Entry& entry, const algorithm::Request& request) const {
    if (!blocks_inside_) return 0;
    const std::lock_guard lock(mutex_);
    const auto [known, is_new] = known_.try_emplace({&entry, request.root, request.in_place});
    if (is_new) known->second = blocks_inside_(entry, request);
    return known->second;
  }

  std::shared_ptr<const EngineModel> host_;
  BlocksInside blocks_inside_;
  std::string why_no_ll128_;
  mutable std::mutex mutex_;
  mutable std::map<std::tuple<const algorithm::Entry*, int, bool>, int> known_;
};

}  // namespace

std::shared_ptr<const EngineModel> staged_model(std::shared_ptr<const EngineModel> host,
                                                BlocksInside blocks_inside,
                                                std::string why_no_ll128) {
  return std::make_shared<StagedModel>(std::move(host), std::move(blocks_inside),
                                       std::move(why_no_ll128));
}

}  // namespace unisono::comm
