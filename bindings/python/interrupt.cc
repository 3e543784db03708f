#include "interrupt.h"

#include <unisono/interrupt.h>

namespace nb = nanobind;

namespace unisono::python {
namespace {

unsigned long main_thread = 0;

}  // namespace

bool is_main_thread() { return PyThread_get_thread_ident() == main_thread; }

bool interrupted() {
  if (!is_main_thread()) return false;
  const nb::gil_scoped_acquire acquire;
  return PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
}

void answer_interrupts() {
  main_thread = nb::cast<unsigned long>(
      nb::module_::import_("threading").attr("main_thread")().attr("ident"));
  set_interrupt_check(&interrupted);
}

}  // namespace unisono::python
