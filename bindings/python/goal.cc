// GOAL schedules: read, written, run, and made of collectives and workloads.

#include "simulate/goal.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "convert.h"
#include "simulate/goal_export.h"
#include "simulate/goal_run.h"
#include "simulate/workload_json.h"

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
  const std::string bytes = take(simulate::goal::write_binary(self));
  return nb::bytes(bytes.data(), bytes.size());
}

std::size_t operations(const Schedule& self) {
  std::size_t count = 0;
  for (const simulate::goal::Rank& rank : self.ranks) count += rank.operations().size();
  return count;
}

Schedule goal_of_collective(const Machine& machine, const algorithm::Entry& algorithm, int ranks,
                            int nodes, std::int64_t count, std::string_view type,
                            std::string_view protocol, int channels, int root) {
  simulate::CollectiveCall call;
  call.request.collective = algorithm.collective;
  call.request.placement = take(simulate::place(machine, ranks, nodes));
  call.request.root = root;
  call.request.protocol = protocol_of(protocol);
  call.request.channels = channels;
  call.count = count;
  call.type = data_type_of(type);
  return released([&] { return simulate::goal_of_collective(machine, algorithm, call); });
}

Schedule goal_of_workload(const Machine& machine, std::string_view json) {
  return released([&]() -> Result<Schedule> {
    auto workload = simulate::read_workload(json);
    if (!workload.ok()) return workload.take_error();
    return simulate::goal_of_workload(machine, *workload);
  });
}

RunResult run_goal(const Machine& machine, const Schedule& schedule, std::uint64_t rendezvous_bytes,
                   std::uint64_t max_events) {
  return released(
      [&] { return simulate::goal::run(machine, schedule, {rendezvous_bytes, max_events}); });
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
  module.def("goal_of_workload", &goal_of_workload, nb::arg("machine"), nb::arg("workload"));
  module.def("run_goal", &run_goal, nb::arg("machine"), nb::arg("schedule"), nb::kw_only(),
             nb::arg("rendezvous_bytes") = simulate::goal::max_size,
             nb::arg("max_events") = std::uint64_t{1} << 36);
}

}  // namespace unisono::python
