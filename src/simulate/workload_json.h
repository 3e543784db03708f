// Workloads as JSON: what workload.yaml, the generators and the readers of traces become.
#pragma once

#include <unisono/result.h>

#include <string_view>

#include "simulate/workload.h"

namespace unisono::simulate {

inline constexpr std::size_t max_workload_bytes = std::size_t{1} << 29;

// Misuse that names the member. Members are those of Workload and Task, by the same names, but for
// `kind` (a task's activity) and `ns` (its duration). What is read has not passed check().
Result<Workload> read_workload(std::string_view json);

}  // namespace unisono::simulate
