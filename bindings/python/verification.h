// What plans and the verifier's classes give each other.
#pragma once

#include <nanobind/nanobind.h>

namespace unisono::plan {
struct Plan;
}

namespace unisono::python {

// What Plan.schedule() gives: verify::Schedule with its lists as tuples.
nanobind::object schedule_of(const plan::Plan& plan, int slots);

}  // namespace unisono::python
