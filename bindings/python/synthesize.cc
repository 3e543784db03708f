// Synthesis: link graphs, schedules, and the plans that they become.

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "base/settings.h"
#include "bind.h"
#include "convert.h"
#include "synthesize/program.h"
#include "synthesize/routes.h"
#include "synthesize/schedule.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

using synthesize::Link;
using synthesize::LinkGraph;
using synthesize::Schedule;
using synthesize::Transfer;

using LinkTuple = std::tuple<int, int, double, double, int>;
// chunk, from, to, reduces, start and end in us.
using TransferTuple = std::tuple<int, int, int, bool, double, double>;

LinkGraph make_graph(std::string name, int ranks, int switches,
                     const std::vector<LinkTuple>& links) {
  LinkGraph graph{std::move(name), ranks, switches, {}};
  for (const auto& [from, to, latency_ns, gb_s, lanes] : links)
    graph.links.push_back({from, to, latency_ns, gb_s, lanes});
  check(synthesize::check(graph));
  return graph;
}

std::vector<LinkTuple> links_of(const LinkGraph& self) {
  std::vector<LinkTuple> out;
  for (const Link& link : self.links)
    out.emplace_back(link.from, link.to, link.latency_ns, link.gb_s, link.lanes);
  return out;
}

// from, to, numbers of links.
std::vector<std::tuple<int, int, std::vector<int>>> routes_of(const LinkGraph& self,
                                                              std::int64_t chunk_bytes) {
  const synthesize::Routes found = synthesize::find_rank_routes(self, chunk_bytes);
  std::vector<std::tuple<int, int, std::vector<int>>> out;
  for (const synthesize::Route& route : found.routes) {
    const auto links = found.links_of(route);
    out.emplace_back(route.from, route.to, std::vector<int>(links.begin(), links.end()));
  }
  return out;
}

std::vector<TransferTuple> transfers_of(const Schedule& self) {
  std::vector<TransferTuple> out;
  for (const Transfer& one : self.transfers)
    out.emplace_back(one.chunk, one.from, one.to, one.reduces, simulate::to_us(one.start),
                     simulate::to_us(one.end));
  return out;
}

Schedule synthesize_greedily(const LinkGraph& graph, std::string_view collective, int chunks,
                             std::int64_t chunk_bytes, std::uint64_t seed, int tries) {
  const synthesize::Goal goal{collective_of(collective), chunks, chunk_bytes, seed, tries};
  const auto run = [&] {
    const nb::gil_scoped_release release;
    return synthesize::synthesize(graph, goal);
  };
  return take(run());
}

Schedule make_schedule(std::string_view collective, int ranks, int chunks,
                       const std::vector<TransferTuple>& transfers) {
  Schedule schedule;
  schedule.collective = collective_of(collective);
  schedule.ranks = ranks;
  schedule.chunks = chunks;
  for (const auto& [chunk, from, to, reduces, start_us, end_us] : transfers) {
    schedule.transfers.push_back({chunk, from, to, reduces, simulate::from_ns(start_us * 1e3),
                                  simulate::from_ns(end_us * 1e3)});
    schedule.duration = std::max(schedule.duration, schedule.transfers.back().end);
  }
  return schedule;
}

compile::Compiled compile_schedule(const Schedule& schedule, std::string name, bool in_place,
                                   std::string_view protocol, int instances, double alpha_us,
                                   double gigabytes_per_second, std::int64_t block_bytes, bool fuse,
                                   int slots) {
  const compile::Options options{
      .in_place = in_place,
      .protocol = protocol_of(protocol),
      .instances = instances,
      .alpha_us = alpha_us,
      .gigabytes_per_second = gigabytes_per_second,
      .block_bytes = block_bytes,
      .fuse = fuse,
      .slots = slots,
      .check_passes = environment_settings().boolean(Setting::check_passes)};
  const auto run = [&] {
    const nb::gil_scoped_release release;
    return synthesize::compile_schedule(schedule, std::move(name), options);
  };
  return take(run());
}

}  // namespace

void bind_synthesize(nb::module_& module) {
  nb::class_<LinkGraph>(module, "LinkGraph")
      .def_static("make", &make_graph, nb::arg("name"), nb::arg("ranks"), nb::arg("switches"),
                  nb::arg("links"))
      .def_static(
          "of_machine",
          [](const simulate::Machine& machine, int ranks, int nodes) {
            return take(synthesize::link_graph_of(machine, ranks, nodes));
          },
          nb::arg("machine"), nb::arg("ranks"), nb::arg("nodes") = 0)
      .def_ro("name", &LinkGraph::name)
      .def_ro("ranks", &LinkGraph::ranks)
      .def_ro("switches", &LinkGraph::switches)
      .def_prop_ro("links", &links_of)
      .def("routes", &routes_of, nb::arg("chunk_bytes"));
  nb::class_<Schedule>(module, "TransferSchedule")
      .def_static("make", &make_schedule, nb::arg("collective"), nb::arg("ranks"),
                  nb::arg("chunks"), nb::arg("transfers"))
      .def_prop_ro("collective",
                   [](const Schedule& self) { return text(unisono::name(self.collective)); })
      .def_ro("ranks", &Schedule::ranks)
      .def_ro("chunks", &Schedule::chunks)
      .def_prop_ro("transfers", &transfers_of)
      .def_prop_ro("duration_us",
                   [](const Schedule& self) { return simulate::to_us(self.duration); })
      .def_prop_ro("bound_us", [](const Schedule& self) { return simulate::to_us(self.bound); })
      .def("compile", &compile_schedule, nb::arg("name"), nb::kw_only(),
           nb::arg("in_place") = false, nb::arg("protocol") = "simple", nb::arg("instances") = 1,
           nb::arg("alpha_us") = 5.0, nb::arg("gigabytes_per_second") = 20.0,
           nb::arg("block_bytes") = 0, nb::arg("fuse") = true, nb::arg("slots") = 2);
  module.def("synthesize_greedily", &synthesize_greedily, nb::arg("graph"), nb::arg("collective"),
             nb::kw_only(), nb::arg("chunks") = 1, nb::arg("chunk_bytes") = std::int64_t{1} << 20,
             nb::arg("seed") = 1, nb::arg("tries") = 4);
}

}  // namespace unisono::python
