// Chaos: whole jobs in the simulated world, by their seeds.

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "chaos/play.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

using chaos::Outcome;
using chaos::Scenario;

// What a seed came to; the story of the shortest failure, if it went wrong.
struct Played {
  Outcome outcome;
  bool is_repeatable = true;
  std::string story;
};

Played play(std::uint64_t seed, int ranks, int nodes, int operations, int strikes, bool twice,
            bool shrinks) {
  const chaos::Options options{
      .ranks = ranks, .nodes = nodes, .operations = operations, .strikes = strikes};
  const Scenario scenario = chaos::scenario_of(seed, options);
  Played out{.outcome = chaos::play(scenario), .is_repeatable = true, .story = {}};
  if (twice) out.is_repeatable = chaos::play(scenario).hash == out.outcome.hash;
  if (out.outcome.wrong.empty()) return out;
  const Scenario shortest = shrinks ? chaos::shrink(scenario, out.outcome) : scenario;
  out.story = chaos::story(shortest, chaos::play(shortest));
  return out;
}

}  // namespace

void bind_chaos(nb::module_& module) {
  nb::class_<Played>(module, "Played")
      .def_prop_ro("wrong", [](const Played& self) { return self.outcome.wrong; })
      .def_prop_ro("calls", [](const Played& self) { return self.outcome.calls; })
      .def_prop_ro("failures", [](const Played& self) { return self.outcome.failures; })
      .def_prop_ro("events", [](const Played& self) { return self.outcome.events; })
      .def_prop_ro("hash", [](const Played& self) { return self.outcome.hash; })
      .def_prop_ro(
          "seconds",
          [](const Played& self) { return static_cast<double>(self.outcome.virtual_ns) / 1e9; })
      .def_prop_ro("places",
                   [](const Played& self) {
                     std::vector<std::string> out;
                     for (const auto& [place, times] : self.outcome.places)
                       out.push_back(place.second);
                     return out;
                   })
      .def_ro("is_repeatable", &Played::is_repeatable)
      .def_ro("story", &Played::story);
  module.def("play_chaos", &play, nb::arg("seed"), nb::arg("ranks"), nb::arg("nodes"),
             nb::arg("operations"), nb::arg("strikes"), nb::arg("twice"), nb::arg("shrinks"),
             nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace unisono::python
