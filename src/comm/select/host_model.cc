#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "comm/select/cost_model.h"
#include "comm/select/engine_model.h"

namespace unisono::comm {
namespace {

constexpr std::size_t largest_element_bytes = 8;

class HostModel : public EngineModel {
 public:
  HostModel(const transport::FifoOptions& fifo_options, const HostTraits& host,
            const CostModel& costs)
      : fifo_options_(fifo_options), host_(host), costs_(costs), single_copy_costs_(costs) {
    single_copy_costs_.intra_node[static_cast<std::size_t>(Protocol::simple)].beta_ns_per_byte /=
        host.single_copy_gain;
    single_copy_costs_.again_ns_per_byte /= host.single_copy_gain;
  }

  // Its largest step must fit a slot.
  bool runs(const algorithm::Entry& entry, const algorithm::Request& request) const override {
    const plan::Header header = entry.header(request);
    return static_cast<std::size_t>(header.max_step_count) * largest_element_bytes <=
           transport::slot_payload_bytes(fifo_options_, request.protocol);
  }
  std::string_view name() const override { return "host"; }
  trace::ChosenPath path(const PlanToRun& plan) const override {
    return {.slots = fifo_options_.slots,
            .chunk_bytes = static_cast<std::uint32_t>(
                transport::slot_payload_bytes(fifo_options_, plan.request.protocol))};
  }
  std::string note(const PlanToRun&) const override {
    if (!fifo_options_.zero_copy) return {};
    const std::string text = str("single copies: messages of ",
                                 format_bytes(fifo_options_.zero_copy_min_bytes), " and more");
    return host_.single_copy_gain > 1
               ? str(text, ", measured ", std::round(host_.single_copy_gain * 100) / 100,
                     " times as fast as slots")
               : text;
  }
  std::span<const int> channels() const override {
    static constexpr std::array one{1};
    return one;
  }
  double time_us(const algorithm::Entry& entry, const algorithm::Request& request,
                 const algorithm::Cost& stated, double, const CallOptions&) const override {
    const int ranks = request.placement.ranks();
    // Some state the longest chain only: all messages then tell how many each rank sends.
    algorithm::Cost cost = stated;
    cost.messages = std::max(cost.messages, cost.messages_of_all / ranks);
    // Between nodes the links decide, of virtual ones too: their ranks only happen to share cores.
    const double oversubscription = request.placement.nodes() == 1 ? host_.oversubscription : 1;
    const CostModel& costs =
        has_single_copies(cost, request.protocol) ? single_copy_costs_ : costs_;
    const double us = costs.time_us(cost, request.protocol, request.placement.nodes(),
                                    entry.passes_on, oversubscription);
    // A root needs as many messages as there are others. Of more, those who wait wake up one after
    // another, which the busiest rank's messages do not tell: by two_shot, with (p - 1)^2, 4 ranks
    // on 2 cores took 1.5 to 3.7 times the time of the best tree or ring, and 16 ranks with a core
    // each 1 to 3.2 times from 8 KiB on (bench/results/broadcast.txt).
    const int others = ranks - 1;
    if (has_root(entry.collective) && cost.messages_of_all > others && others > 0)
      return us * static_cast<double>(cost.messages_of_all) / others;
    return us;
  }
  int thread_blocks(const algorithm::Entry&, const algorithm::Request&, double) const override {
    return 0;
  }

 private:
  bool has_single_copies(const algorithm::Cost& cost, Protocol protocol) const {
    const auto messages = static_cast<double>(std::max<std::int64_t>(cost.messages, 1));
    return fifo_options_.zero_copy && protocol == Protocol::simple &&
           cost.bytes_sent / messages >= static_cast<double>(fifo_options_.zero_copy_min_bytes);
  }

  transport::FifoOptions fifo_options_;
  HostTraits host_;
  CostModel costs_;
  CostModel single_copy_costs_;
};

}  // namespace

std::shared_ptr<const EngineModel> host_model(const transport::FifoOptions& fifo_options,
                                              const HostTraits& host, const CostModel& costs) {
  return std::make_shared<HostModel>(fifo_options, host, costs);
}

}  // namespace unisono::comm
