#include "comm/cost_model.h"

#include <algorithm>

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
         1e-3 * (cost.bytes_sent_inter_node * between.beta_ns_per_byte +
                 crowding *
                     ((inside_bytes + cost.bytes_filling) * inside.beta_ns_per_byte +
                      again_bytes * again_ns_per_byte + cost.bytes_reduced * reduce_ns_per_byte));
}

const CostModel& host_cost_model() {
  static constexpr CostModel model{
      .intra_node = {{0.15, 0.08, 0.060}, {0.25, 0.1, 0.32}, {0.23, 0.1, 0.062}},
      .inter_node = {{20, 5, 0.45}, {20, 5, 0.50}, {20, 5, 0.47}},
      .reduce_ns_per_byte = 0.08,
      .again_ns_per_byte = 0.03,
      .turn_us = 1,
  };
  return model;
}

}  // namespace unisono::comm
