// unisono._unisono: the native core as Python sees it. python/unisono/_unisono.pyi documents it.

#include "bind.h"
#include "edge.h"
#include "interrupt.h"

NB_MODULE(_unisono, module) {
  using namespace unisono::python;
  // Communicators may live until the interpreter is gone.
  nanobind::set_leak_warnings(false);
  module.attr("__version__") = UNISONO_VERSION;
  module.attr("__nanobind_version__") = NB_TOSTRING(NB_VERSION_MAJOR) "." NB_TOSTRING(
      NB_VERSION_MINOR) "." NB_TOSTRING(NB_VERSION_PATCH);
  answer_exceptions();
  bind_buffer(module);
  bind_call(module);
  bind_meeting(module);
  bind_communicator(module);
  bind_window(module);
  bind_quick_call(module);
  bind_cards(module);
  bind_cuda(module);
  bind_exit(module);
  bind_info(module);
  bind_interrupt(module);
  bind_algorithms(module);
  bind_verify(module);
  bind_plan(module);
  bind_selection(module);
  bind_plan_run(module);
  bind_compiled(module);
  bind_lang(module);
  bind_simulate(module);
  bind_workload(module);
  bind_synthesize(module);
  bind_goal(module);
  bind_chaos(module);
  guard_functions(module);
  answer_interrupts();
}
