// unisono._bench: what measures the library and compares it with others. It links to
// unisono._unisono, so that a process has one core. python/unisono/_bench.pyi documents it.

#include "bench.h"
#include "edge.h"

NB_MODULE(_bench, module) {
  using namespace unisono::python;
  nanobind::set_leak_warnings(false);
  nanobind::module_::import_("unisono._unisono");  // whose classes its functions take
  bind_host(module);
  bind_device(module);
  guard_functions(module);
}
