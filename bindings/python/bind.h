// The module's parts, by subject. Order matters: a part uses the classes of those before it.
#pragma once

#include <nanobind/nanobind.h>

namespace unisono::python {

void bind_buffer(nanobind::module_& module);
void bind_meeting(nanobind::module_& module);
void bind_communicator(nanobind::module_& module);  // call.cc, communicator.cc
void bind_window(nanobind::module_& module);
void bind_quick_call(nanobind::module_& module);
void bind_call(nanobind::module_& module);
void bind_cards(nanobind::module_& module);
void bind_cuda(nanobind::module_& module);
void bind_exit(nanobind::module_& module);
void bind_info(nanobind::module_& module);
void bind_interrupt(nanobind::module_& module);
void bind_algorithms(nanobind::module_& module);
void bind_plan(nanobind::module_& module);
void bind_verify(nanobind::module_& module);
void bind_selection(nanobind::module_& module);
void bind_plan_run(nanobind::module_& module);
void bind_compiled(nanobind::module_& module);
void bind_lang(nanobind::module_& module);
void bind_simulate(nanobind::module_& module);
void bind_workload(nanobind::module_& module);
void bind_synthesize(nanobind::module_& module);
void bind_goal(nanobind::module_& module);
void bind_chaos(nanobind::module_& module);

}  // namespace unisono::python
