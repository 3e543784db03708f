// GOAL schedules: read, written, run, and made of collectives and workloads.

#include "simulate/goal.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "convert.h"
#include "simulate/goal_export.h"
#include "simulate/goal_run.h"
#include "simulate/workload_json.h"
#include "simulation.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

using simulate::Machine;
using simulate::goal::RunResult;
using simulate::goal::Schedule;

// Without the GIL.
template <class Work>
auto released(const Work& work) {
  const auto result = [&] {
    const nb::gil_scoped_release release;
    return work();
  };
  return take(result());
}

Schedule read_goal(const nb::bytes& contents) {
  const std::string_view text(contents.c_str(), contents.size());
  return released([&] { return simulate::goal::read(text); });
}

nb::bytes to_binary(const Schedule& self) {
  const std::string bytes = simulate::goal::write_binary(self);
  return nb::bytes(bytes.data(), bytes.size());
}

// Kind, size, peer, tag, cpu, and what it requires: to have ended, and to have begun.
using OperationTuple = std::tuple<std::string, std::uint64_t, std::uint32_t, std::uint32_t, int,
                                  std::vector<std::uint32_t>, std::vector<std::uint32_t>>;

std::vector<OperationTuple> operations_of(const Schedule& self, std::size_t number) {
  if (number >= self.ranks.size()) throw nb::index_error("the schedule has fewer ranks");
  const simulate::goal::Rank& rank = self.ranks[number];
  std::vector<OperationTuple> out;
  for (const simulate::goal::Operation& one : rank.operations())
    out.emplace_back(text(name(one.kind)), one.size, one.peer, one.tag, one.cpu,
                     std::vector<std::uint32_t>{}, std::vector<std::uint32_t>{});
  for (std::uint32_t from = 0; from < out.size(); ++from) {
    for (const std::uint32_t to : rank.after_end(from)) std::get<5>(out[to]).push_back(from);
    for (const std::uint32_t to : rank.after_start(from)) std::get<6>(out[to]).push_back(from);
  }
  return out;
}

std::size_t operations(const Schedule& self) {
  std::size_t count = 0;
  for (const simulate::goal::Rank& rank : self.ranks) count += rank.operations().size();
  return count;
}

Schedule goal_of_collective(const Machine& machine, const algorithm::Entry& algorithm, int ranks,
                            int nodes, std::int64_t count, std::string_view type,
                            std::string_view protocol, int channels, int root) {
  const simulate::CollectiveCall call =
      collective_call(machine, algorithm, ranks, nodes, count, type, protocol, channels, root);
  return released([&] { return simulate::goal_of_collective(machine, algorithm, call); });
}

Schedule goal_of_plan(const Machine& machine, const plan::Plan& plan, std::int64_t count,
                      std::string_view type) {
  const DataType element = data_type_of(type);
  return released([&] { return simulate::goal_of_plan(machine, plan, count, element); });
}

Schedule goal_of_workload(const Machine& machine, std::string_view json) {
  return released([&]() -> Result<Schedule> {
    auto workload = simulate::read_workload(json);
    if (!workload.ok()) return workload.take_error();
    return simulate::goal_of_workload(machine, *workload);
  });
}

RunResult run_goal(const Machine& machine, const Schedule& schedule, std::uint64_t rendezvous_bytes,
                   std::uint64_t max_events, simulate::Progress* progress) {
  return watched(progress, [&](simulate::Progress& watch) {
    return simulate::goal::run(machine, schedule, {rendezvous_bytes, max_events, &watch});
  });
}

std::vector<double> ranks_us(const RunResult& self) {
  std::vector<double> out;
  for (const simulate::Time end : self.ranks) out.push_back(simulate::to_us(end));
  return out;
}

}  // namespace

void bind_goal(nb::module_& module) {
  nb::class_<Schedule>(module, "GoalSchedule")
      .def_static("read", &read_goal, nb::arg("contents"))
      .def_prop_ro("ranks", [](const Schedule& self) { return self.ranks.size(); })
      .def_prop_ro("operations", &operations)
      .def("operations_of", &operations_of, nb::arg("rank"))
      .def("to_text", &simulate::goal::write_text)
      .def("to_binary", &to_binary);
  nb::class_<RunResult>(module, "GoalResult")
      .def_prop_ro("time_us", [](const RunResult& self) { return simulate::to_us(self.finished); })
      .def_prop_ro("ranks_us", &ranks_us)
      .def_ro("last_rank", &RunResult::last_rank)
      .def_ro("operations", &RunResult::operations)
      .def_ro("messages", &RunResult::messages)
      .def_ro("bytes", &RunResult::bytes)
      .def_ro("events", &RunResult::events);
  module.def("goal_of_collective", &goal_of_collective, nb::arg("machine"), nb::arg("algorithm"),
             nb::kw_only(), nb::arg("ranks"), nb::arg("nodes") = 0, nb::arg("count"),
             nb::arg("type") = "float32", nb::arg("protocol") = "simple", nb::arg("channels") = 1,
             nb::arg("root") = 0);
  module.def("goal_of_plan", &goal_of_plan, nb::arg("machine"), nb::arg("plan"), nb::kw_only(),
             nb::arg("count"), nb::arg("type") = "float32");
  module.def("goal_of_workload", &goal_of_workload, nb::arg("machine"), nb::arg("workload"));
  module.def("run_goal", &run_goal, nb::arg("machine"), nb::arg("schedule"), nb::kw_only(),
             nb::arg("rendezvous_bytes") = simulate::goal::max_size,
             nb::arg("max_events") = std::uint64_t{1} << 36, nb::arg("progress") = nb::none());
}

}  // namespace unisono::python
