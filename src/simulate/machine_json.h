// Machines as JSON: what the YAML of clusters/ becomes once it is checked and its units are gone.
#pragma once

#include <unisono/result.h>

#include <string_view>

#include "simulate/machine.h"

namespace unisono::simulate {

inline constexpr std::size_t max_machine_bytes = std::size_t{1} << 20;

// Misuse that names the member; what is read passes check(). Members are those of Machine, by the
// same names; `protocols` is an object of "simple", "ll" and "ll128".
Result<Machine> read_machine(std::string_view json);

}  // namespace unisono::simulate
