// What the results of simulations have in common.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>
#include <tuple>
#include <vector>

#include "simulate/collective.h"

namespace unisono::python {

// Throws for a name that is none.
simulate::NetworkModel model_of(std::string_view wanted);

// Of the critical path, by name, in microseconds.
nanobind::dict shares(const simulate::ExecutorResult& run);

// A collective as Python describes it; throws for what is no name, and for too many ranks.
simulate::CollectiveCall collective_call(const simulate::Machine& machine,
                                         const algorithm::Entry& algorithm, int ranks, int nodes,
                                         std::int64_t count, std::string_view type,
                                         std::string_view protocol, int channels, int root);

// From the first to the last message of the critical path: sender, receiver, bytes, sent, arrived.
using HopTuple = std::tuple<int, int, std::int64_t, double, double>;
std::vector<HopTuple> hops(const simulate::ExecutorResult& run);

}  // namespace unisono::python
