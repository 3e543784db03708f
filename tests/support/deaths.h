// Deaths of simulated processes at a time that a test chooses.
#pragma once

#include "sys/simulated_world.h"

namespace unisono::comm {

inline void kill_at(sys::Simulation& simulation, int process, std::int64_t time_ns,
                    sys::Death death) {
  simulation.at(time_ns, [&simulation, process, death] { simulation.kill(process, death); });
}

}  // namespace unisono::comm
