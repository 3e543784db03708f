// What plans and the verifier's classes give each other.
#pragma once

#include <nanobind/nanobind.h>

namespace unisono::plan {
struct Plan;
}

namespace unisono::python {

// Messages that a connection holds in every transport, as UNISONO_SLOTS is set.
int usable_slots();

// What Plan.schedule() gives: verify::Schedule with its lists as tuples.
nanobind::object schedule_of(const plan::Plan& plan, int slots);

}  // namespace unisono::python
