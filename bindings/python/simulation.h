// What the results of simulations have in common.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>
#include <tuple>
#include <vector>

#include "convert.h"
#include "interrupt.h"
#include "simulate/collective.h"

namespace unisono::python {

// Runs `simulate(progress)` without the GIL. Ctrl-C in the main thread stops it.
template <class F>
auto watched(simulate::Progress* progress, const F& simulate) {
  simulate::Progress own;
  simulate::Progress& watch = progress != nullptr ? *progress : own;
  return take(interruptible([&] { return simulate(watch); }, [&watch] { watch.stop(); }));
}

// The options with who watches.
simulate::CollectiveOptions watched_by(simulate::CollectiveOptions options,
                                       simulate::Progress& progress);

// Throws for a name that is none.
simulate::NetworkModel model_of(std::string_view wanted);

// The shares of the critical path, by name, in microseconds.
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
