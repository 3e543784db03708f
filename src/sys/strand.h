// A fiber of a process in a simulation. For the simulation's own files alone.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "sys/fiber.h"
#include "sys/simulated_process.h"

namespace unisono::sys {

class Simulation::Strand {
 public:
  Strand(SimulatedWorld& of, std::function<void()> run) : world(of), fiber(std::move(run)) {}

  SimulatedWorld& world;
  Fiber fiber;
  WaitQueue ended;  // notified then
};

}  // namespace unisono::sys
