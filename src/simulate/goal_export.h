// Schedules as GOAL: of a collective's plan, and of a whole workload.
//
// Each message is a send and a receive with a tag of its own, each thread block has a cpu, and what
// reduces or copies calculates for as long as it does on the machine. Launches, slots and the bytes
// of flags have no place in GOAL.
#pragma once

#include <unisono/result.h>

#include "simulate/collective.h"
#include "simulate/goal.h"
#include "simulate/workload.h"

namespace unisono::simulate {

// Misuse for what simulate_collective() and simulate_workload() refuse, and for plans with
// one-sided steps, which GOAL cannot say.
Result<goal::Schedule> goal_of_collective(const Machine& machine, const algorithm::Entry& entry,
                                          const CollectiveCall& call);
Result<goal::Schedule> goal_of_plan(const Machine& machine, const plan::Plan& plan,
                                    std::int64_t count, DataType type);
Result<goal::Schedule> goal_of_workload(const Machine& machine, const Workload& workload);

}  // namespace unisono::simulate
