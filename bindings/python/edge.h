// The module's edge: what nanobind and the standard library throw becomes an exception of
// unisono.errors, for every function of the module and every method of its classes.
#pragma once

#include <nanobind/nanobind.h>

namespace unisono::python {

// C++ exceptions that no function answers itself; std::bad_alloc stays Python's MemoryError.
void answer_exceptions();

// Arguments that no overload takes. Call it when all functions are in the module.
void guard_functions(nanobind::module_& module);

}  // namespace unisono::python
