// Placements and the registry of algorithms.

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cmath>

#include "algorithm/algorithm.h"
#include "base/error.h"
#include "bind.h"
#include "convert.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

using algorithm::Cost;
using algorithm::Entry;
using algorithm::Request;
using topo::Placement;

constexpr int max_ranks = 1 << 20;

Placement even_placement(int ranks, int nodes) {
  if (ranks < 1 || ranks > max_ranks)
    raise(misuse("ranks is ", ranks, "; it must be 1 to ", max_ranks));
  if (nodes < 1 || nodes > ranks)
    raise(misuse("nodes is ", nodes, "; with ", ranks, " ranks it must be 1 to ", ranks));
  std::vector<int> ranks_on_node;
  for (int node = 0; node < nodes; ++node)
    ranks_on_node.push_back(ranks / nodes + (node < ranks % nodes ? 1 : 0));
  return take(Placement::blocks(ranks_on_node));
}

int checked_rank(const Placement& placement, int rank) {
  if (rank < 0 || rank >= placement.ranks())
    raise(misuse("rank is ", rank, "; it must be 0 to ", placement.ranks() - 1));
  return rank;
}

int checked_node(const Placement& placement, int node) {
  if (node < 0 || node >= placement.nodes())
    raise(misuse("node is ", node, "; it must be 0 to ", placement.nodes() - 1));
  return node;
}

Request request_of(const Entry& entry, const Placement& placement, int root, bool in_place,
                   std::string_view protocol, int channels) {
  return {.collective = entry.collective,
          .placement = placement,
          .root = root,
          .in_place = in_place,
          .protocol = protocol_of(protocol),
          .channels = channels};
}

std::string why_not(const Entry& entry, const Placement& placement, int root, bool in_place,
                    std::string_view protocol, int channels) {
  const auto status = algorithm::check_request(
      entry, request_of(entry, placement, root, in_place, protocol, channels));
  return status.ok() ? "" : status.error().message;
}

plan::Plan make_plan(const Entry& entry, const Placement& placement, int root, bool in_place,
                     std::string_view protocol, int channels) {
  const Request request = request_of(entry, placement, root, in_place, protocol, channels);
  const auto make = [&] {
    const nb::gil_scoped_release release;
    return algorithm::make_plan(entry, request);
  };
  return take(make());
}

Cost cost(const Entry& entry, const Placement& placement, double block_bytes, int root,
          bool in_place, std::string_view protocol, int channels) {
  const Request request = request_of(entry, placement, root, in_place, protocol, channels);
  if (!(block_bytes >= 0 && std::isfinite(block_bytes)))
    raise(misuse("block_bytes is ", block_bytes, "; it must be 0 or more"));
  check(algorithm::check_request(entry, request));
  return entry.cost(request, block_bytes);
}

std::vector<const Entry*> algorithms(std::string_view collective) {
  if (!collective.empty()) return algorithm::entries_for(collective_of(collective));
  std::vector<const Entry*> out;
  for (const Entry& entry : algorithm::entries()) out.push_back(&entry);
  return out;
}

void bind_placement(nb::module_& module) {
  nb::class_<Placement>(module, "Placement")
      .def(
          "__init__",
          [](Placement* self, int ranks, int nodes) {
            new (self) Placement(even_placement(ranks, nodes));
          },
          nb::arg("ranks"), nb::arg("nodes") = 1)
      .def_static(
          "from_nodes",
          [](const std::vector<int>& node_of_rank) {
            return take(Placement::from_nodes(node_of_rank));
          },
          nb::arg("node_of_rank"))
      .def("__repr__",
           [](const Placement& self) {
             return str("<unisono.Placement: ", number_of(self.ranks(), "rank"), " on ",
                        number_of(self.nodes(), "node"), ">");
           })
      .def_prop_ro("ranks", &Placement::ranks)
      .def_prop_ro("nodes", &Placement::nodes)
      .def(
          "node_of",
          [](const Placement& self, int rank) { return self.node_of(checked_rank(self, rank)); },
          nb::arg("rank"))
      .def(
          "with_levels",
          [](const Placement& self, const std::vector<std::string>& locations) {
            std::vector<topo::Location> by_node;
            for (const std::string& text : locations)
              by_node.push_back(take(topo::parse_location(text)));
            return take(self.with(take(topo::Levels::of_nodes(by_node))));
          },
          nb::arg("locations"))
      .def(
          "with_spans",
          [](const Placement& self,
             const std::vector<std::tuple<std::string, int, std::int64_t>>& spans) {
            std::vector<topo::Levels::Span> out;
            for (const auto& [level, nodes, leaving_ns] : spans)
              out.push_back({level, nodes, leaving_ns});
            return take(self.with(take(topo::Levels::of_spans(self.nodes(), out))));
          },
          nb::arg("spans"))
      .def_prop_ro("levels",
                   [](const Placement& self) {
                     std::vector<std::string> names;
                     for (int level = 0; level < self.levels().count(); ++level)
                       names.push_back(self.levels().name(level));
                     return names;
                   })
      .def(
          "levels_left",
          [](const Placement& self, int rank, int other) {
            checked_rank(self, rank);
            checked_rank(self, other);
            return self.same_node(rank, other) ? -1 : self.levels_left(rank, other);
          },
          nb::arg("rank"), nb::arg("other"))
      .def(
          "ranks_on",
          [](const Placement& self, int node) { return self.ranks_on(checked_node(self, node)); },
          nb::arg("node"));
}

void bind_cost(nb::module_& module) {
  nb::class_<Cost>(module, "Cost")
      .def_ro("steps", &Cost::steps)
      .def_ro("steps_inter_node", &Cost::steps_inter_node)
      .def_prop_ro("steps_leaving",
                   [](const Cost& self) {
                     return std::vector<std::int64_t>(self.steps_leaving.begin(),
                                                      self.steps_leaving.end());
                   })
      .def_ro("messages", &Cost::messages)
      .def_ro("messages_inter_node", &Cost::messages_inter_node)
      .def_ro("messages_of_all", &Cost::messages_of_all)
      .def_ro("bytes_sent", &Cost::bytes_sent)
      .def_ro("bytes_sent_inter_node", &Cost::bytes_sent_inter_node)
      .def_ro("bytes_filling", &Cost::bytes_filling)
      .def_ro("bytes_copied", &Cost::bytes_copied)
      .def_ro("bytes_reduced", &Cost::bytes_reduced)
      .def_ro("exact", &Cost::exact);
}

}  // namespace

void bind_algorithms(nb::module_& module) {
  bind_placement(module);
  bind_cost(module);
  // Entries belong to the registry.
  constexpr auto borrowed = nb::rv_policy::reference;
  nb::class_<Entry>(module, "Algorithm")
      .def_prop_ro("name", [](const Entry& self) { return text(self.name); })
      .def_prop_ro("collective", [](const Entry& self) { return text(name(self.collective)); })
      .def_prop_ro("plan_name", &Entry::plan_name)
      .def_prop_ro("summary", [](const Entry& self) { return text(self.summary); })
      .def_prop_ro("source", [](const Entry& self) { return text(self.source); })
      .def_prop_ro("constraint", [](const Entry& self) { return text(self.constraint); })
      .def("__repr__",
           [](const Entry& self) {
             return str("<unisono.Algorithm ", self.plan_name(), ": ", self.summary, ">");
           })
      .def("_repr_html_", &html_of)
      .def("why_not", &why_not, nb::arg("placement"), nb::kw_only(), nb::arg("root") = 0,
           nb::arg("in_place") = false, nb::arg("protocol") = "simple", nb::arg("channels") = 1)
      .def("plan", &make_plan, nb::arg("placement"), nb::kw_only(), nb::arg("root") = 0,
           nb::arg("in_place") = false, nb::arg("protocol") = "simple", nb::arg("channels") = 1)
      .def("cost", &cost, nb::arg("placement"), nb::arg("block_bytes"), nb::kw_only(),
           nb::arg("root") = 0, nb::arg("in_place") = false, nb::arg("protocol") = "simple",
           nb::arg("channels") = 1);
  module.def("algorithms", &algorithms, nb::arg("collective") = "", borrowed);
  module.def(
      "find_algorithm",
      [](std::string_view plan_name) { return take(algorithm::find_plan(plan_name)); },
      nb::arg("plan_name"), borrowed);
}

}  // namespace unisono::python
