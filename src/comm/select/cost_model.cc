#include "comm/select/cost_model.h"

#include <algorithm>
#include <bit>

namespace unisono::comm {
namespace {

// Ranks that wait for other nodes, too, look at their sockets between two looks at shared memory,
// which takes some 0.5 us: about as long as a message inside a node. The fits liked 2 and 3 better
// than 1 and 1.5.
constexpr double inside_slower = 2;

}  // namespace

double CostModel::time_us(const algorithm::Cost& cost, Protocol protocol, int nodes, bool passes_on,
                          double oversubscription) const {
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
  const double slower = nodes > 1 ? inside_slower : 1;
  const double inside_alpha_us =
      slower * inside.alpha_us + (oversubscription > 1 ? oversubscription * turn_us : 0);
  const double again_bytes = passes_on ? 0 : inside_bytes;
  return inside_steps * inside_alpha_us + between_steps * between.alpha_us +
         slower * inside_further * inside.overhead_us + between_further * between.overhead_us +
         static_cast<double>(cost.messages_of_all_inter_node) / nodes * shared_us +
         1e-3 * ((cost.bytes_sent_inter_node + cost.bytes_filling_inter_node) *
                     between.beta_ns_per_byte +
                 oversubscription *
                     ((inside_bytes + cost.bytes_filling) * inside.beta_ns_per_byte +
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
      .inter_node = {{6.8, 6.4, 0.8}, {6.8, 6.4, 0.816}, {6.8, 6.4, 0.808}},
      .reduce_ns_per_byte = 0.11,
      .again_ns_per_byte = 0.0521,
      .copy_ns_per_byte = 0.0594,
      .turn_us = 1,
      .shared_us = 1.05,
  };
  return model;
}

}  // namespace unisono::comm
