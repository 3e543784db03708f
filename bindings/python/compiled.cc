// What the compiler gives, its passes, and the executors that it can compile for.

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/str.h"
#include "bind.h"
#include "compile/compile.h"
#include "convert.h"
#include "plan/foreign.h"

namespace nb = nanobind;

namespace unisono::python {

void bind_compiled(nb::module_& module) {
  using compile::Compiled;
  nb::class_<Compiled>(module, "Compiled")
      .def_ro("plan", &Compiled::plan)
      .def_ro("steps", &Compiled::steps)
      .def_ro("messages", &Compiled::messages)
      .def("__repr__",
           [](const Compiled& self) {
             return str("<unisono.Compiled ", self.plan.header.name, ": ",
                        number_of(self.plan.header.ranks, "rank"), ", ",
                        number_of(self.steps, "step"), ", ", number_of(self.messages, "message"),
                        ", verified>");
           })
      .def("_repr_html_", &html_of)
      .def_prop_ro("timings", [](const Compiled& self) {
        std::vector<std::pair<std::string, double>> out;
        for (const compile::Timing& one : self.timings)
          out.emplace_back(text(one.name), one.seconds);
        return out;
      });
  using plan::ForeignExecutor;
  nb::class_<ForeignExecutor>(module, "ForeignExecutor")
      .def_prop_ro("name", [](const ForeignExecutor& self) { return text(self.name); })
      .def_prop_ro("format", [](const ForeignExecutor& self) { return text(self.format); })
      .def_prop_ro("summary", [](const ForeignExecutor& self) { return text(self.summary); })
      .def_prop_ro("collectives",
                   [](const ForeignExecutor& self) {
                     std::vector<std::string> out;
                     for (const std::string_view one : self.collectives) out.push_back(text(one));
                     return out;
                   })
      .def_prop_ro("max_steps", [](const ForeignExecutor& self) { return self.limits.max_steps; })
      .def_prop_ro("max_step_count",
                   [](const ForeignExecutor& self) { return self.limits.max_step_count; })
      .def_prop_ro("max_channels",
                   [](const ForeignExecutor& self) { return self.limits.max_channels; })
      .def_prop_ro("max_thread_blocks",
                   [](const ForeignExecutor& self) { return self.limits.max_thread_blocks; })
      .def_ro("max_blocks_per_channel", &ForeignExecutor::max_blocks_per_channel)
      .def_ro("last_awaited_block", &ForeignExecutor::last_awaited_block)
      .def_ro("max_fused_reductions", &ForeignExecutor::max_fused_reductions)
      .def_ro("max_nodes", &ForeignExecutor::max_nodes)
      .def_ro("max_ranks", &ForeignExecutor::max_ranks)
      .def_ro("last_chunk", &ForeignExecutor::last_chunk)
      .def_ro("default_max_bytes", &ForeignExecutor::default_max_bytes)
      .def_ro("custom_blocks_equal", &ForeignExecutor::custom_blocks_equal)
      .def_ro("max_semaphores", &ForeignExecutor::max_semaphores)
      .def(
          "check",
          [](const ForeignExecutor& self, const plan::Plan& plan) {
            plan::Limits limits = self.limits;
            // The limit of the file, whose steps are counted where it is written.
            limits.max_steps = plan::format_limits().max_steps;
            check(plan::check(plan, limits));
          },
          nb::arg("plan"));
  module.def("foreign_executors", [] {
    const auto all = plan::foreign_executors();
    return std::vector<ForeignExecutor>(all.begin(), all.end());
  });
  module.def("passes", [] {
    std::vector<std::pair<std::string, std::string>> out;
    for (const compile::Pass& pass : compile::passes())
      out.emplace_back(text(pass.name), text(pass.summary));
    return out;
  });
}

}  // namespace unisono::python
