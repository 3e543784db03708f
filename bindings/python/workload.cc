// The simulator: workloads of many calls.

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "convert.h"
#include "simulate/workload_json.h"
#include "simulate/workload_run.h"
#include "simulation.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

using simulate::WorkloadResult;

WorkloadResult simulate_workload(const simulate::Machine& machine, std::string_view json,
                                 std::string_view model, double noise, std::uint64_t seed,
                                 bool explain, bool collapse, std::uint64_t max_events,
                                 int timeline, int shown_rank, simulate::Progress* progress) {
  simulate::WorkloadOptions options{.run = {.model = model_of(model),
                                            .noise = noise,
                                            .seed = seed,
                                            .explain = explain,
                                            .collapse = collapse,
                                            .max_events = max_events,
                                            .timeline = timeline},
                                    .shown_rank = shown_rank};
  return watched(progress, [&](simulate::Progress& watch) -> Result<WorkloadResult> {
    auto workload = simulate::read_workload(json);
    if (!workload.ok()) return workload.take_error();
    options.run.progress = &watch;
    return simulate::simulate_workload(machine, *workload, options);
  });
}

using TaskTuple = std::tuple<std::uint32_t, std::int64_t, double, double>;

std::vector<TaskTuple> tasks(const WorkloadResult& self) {
  std::vector<TaskTuple> out;
  out.reserve(self.tasks.size());
  for (const simulate::TaskTime& one : self.tasks)
    out.emplace_back(one.task, one.iteration, simulate::to_us(one.began),
                     simulate::to_us(one.ended));
  return out;
}

std::vector<double> iterations_us(const WorkloadResult& self) {
  std::vector<double> out;
  for (const simulate::Time end : self.iterations) out.push_back(simulate::to_us(end));
  return out;
}

std::vector<std::tuple<std::string, std::size_t, int, std::string>> served(
    const WorkloadResult& self) {
  std::vector<std::tuple<std::string, std::size_t, int, std::string>> out;
  for (const simulate::ServedCall& one : self.served)
    out.emplace_back(one.communicator, one.call, one.ranks, one.algorithm);
  return out;
}

}  // namespace

void bind_workload(nb::module_& module) {
  nb::class_<WorkloadResult>(module, "SimulatedWorkload")
      .def_prop_ro("time_us",
                   [](const WorkloadResult& self) { return simulate::to_us(self.run.finished); })
      .def_prop_ro("last_rank", [](const WorkloadResult& self) { return self.run.last_rank; })
      .def_prop_ro("messages", [](const WorkloadResult& self) { return self.run.messages; })
      .def_prop_ro("wire_bytes", [](const WorkloadResult& self) { return self.run.bytes; })
      .def_prop_ro("events", [](const WorkloadResult& self) { return self.run.events; })
      .def_prop_ro("path_messages",
                   [](const WorkloadResult& self) { return self.run.path.messages; })
      .def_prop_ro("path_messages_inter_node",
                   [](const WorkloadResult& self) { return self.run.path.messages_inter_node; })
      .def_prop_ro("shares", [](const WorkloadResult& self) { return shares(self.run); })
      .def_prop_ro("hops", [](const WorkloadResult& self) { return hops(self.run); })
      .def_ro("ranks", &WorkloadResult::ranks)
      .def_ro("nodes", &WorkloadResult::nodes)
      .def_ro("simulated_ranks", &WorkloadResult::simulated_ranks)
      .def_ro("not_collapsed", &WorkloadResult::not_collapsed)
      .def_prop_ro("iterations_us", &iterations_us)
      .def_prop_ro("tasks", &tasks)
      .def_prop_ro("served", &served);
  module.def("simulate_workload", &simulate_workload, nb::arg("machine"), nb::arg("workload"),
             nb::kw_only(), nb::arg("model") = "loggops", nb::arg("noise") = 0.0,
             nb::arg("seed") = 1, nb::arg("explain") = false, nb::arg("collapse") = true,
             nb::arg("max_events") = std::uint64_t{1} << 36, nb::arg("timeline") = -1,
             nb::arg("shown_rank") = 0, nb::arg("progress") = nb::none());
}

}  // namespace unisono::python
