#include "comm/cost_model.h"

#include <algorithm>
#include <bit>

namespace unisono::comm {

double CostModel::time_us(const algorithm::Cost& cost, Protocol protocol, bool passes_on,
                          double crowding) const {
  const LinkCost& inside = intra_node[static_cast<std::size_t>(protocol)];
  const LinkCost& between = inter_node[static_cast<std::size_t>(protocol)];
  const auto between_steps = static_cast<double>(cost.steps_inter_node);
  const double inside_steps = static_cast<double>(cost.steps) - between_steps;
  const auto further = [](std::int64_t messages, std::int64_t steps) {
    return static_cast<double>(std::max<std::int64_t>(messages - steps, 0));
  };
  const double between_further = further(cost.messages_inter_node, cost.steps_inter_node);
  const double inside_further = std::max(further(cost.messages, cost.steps) - between_further, 0.0);
  const double inside_bytes = cost.bytes_sent - cost.bytes_sent_inter_node;
  const double inside_alpha_us = inside.alpha_us + (crowding > 1 ? crowding * turn_us : 0);
  const double again_bytes = passes_on ? 0 : inside_bytes;
  return inside_steps * inside_alpha_us + between_steps * between.alpha_us +
         inside_further * inside.overhead_us + between_further * between.overhead_us +
         1e-3 *
             (cost.bytes_sent_inter_node * between.beta_ns_per_byte +
              crowding * ((inside_bytes + cost.bytes_filling) * inside.beta_ns_per_byte +
                          again_bytes * again_ns_per_byte + cost.bytes_copied * copy_ns_per_byte +
                          cost.bytes_reduced * reduce_ns_per_byte));
}

Parameters parameters_of(const CostModel& model) { return std::bit_cast<Parameters>(model); }

CostModel cost_model_of(const Parameters& parameters) {
  return std::bit_cast<CostModel>(parameters);
}

const CostModel& host_cost_model() {
  static constexpr CostModel model{
      .intra_node = {{0.467, 0.252, 0.06}, {0.8, 0.35, 0.75}, {0.6, 0.6, 0.3}},
      .inter_node = {{10.9, 11, 0.8}, {10.9, 11, 0.816}, {10.9, 11, 0.808}},
      .reduce_ns_per_byte = 0.11,
      .again_ns_per_byte = 0.0521,
      .copy_ns_per_byte = 0.0594,
      .turn_us = 1,
  };
  return model;
}

}  // namespace unisono::comm
