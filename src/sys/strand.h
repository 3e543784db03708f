// A fiber of a process in a simulation. For the simulation's own files alone.
#pragma once

#include <coroutine>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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

  // What it waits for: the queue, if there is one, or the time. One coroutine serves all waits.
  WaitQueue* awaited = nullptr;
  std::int64_t deadline_ns = 0;
  bool was_notified = false;
  std::coroutine_handle<> waker;  // until the next wait
  std::optional<Task<void>> waking;
};

}  // namespace unisono::sys
