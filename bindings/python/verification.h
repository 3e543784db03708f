// Plans and the verifier's classes share these.
#pragma once

#include <nanobind/nanobind.h>

namespace unisono::plan {
struct Plan;
}

namespace unisono::python {

// Messages that a connection holds in every transport, as UNISONO_SLOTS is set.
int usable_slots();

// Plan.schedule() gives this: verify::Schedule with its lists as tuples.
nanobind::object schedule_of(const plan::Plan& plan, int slots);

}  // namespace unisono::python
