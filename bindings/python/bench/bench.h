// The parts of unisono._bench.
#pragma once

#include <nanobind/nanobind.h>

namespace unisono::python {

void bind_host(nanobind::module_& module);
void bind_device(nanobind::module_& module);

}  // namespace unisono::python
