#pragma once

#include <optional>

#include "comm/join/bootstrap.h"

namespace unisono::python {

// Taken by the first init that gets it.
struct Listener {
  std::optional<comm::RendezvousListener> held;
};

}  // namespace unisono::python
