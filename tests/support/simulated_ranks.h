// Ranks that join a job in the simulated world, on one host, and then do what a test says.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "comm/control/group.h"
#include "comm/join/join.h"
#include "sys/simulated_world.h"

namespace unisono::comm {

class SimulatedRanks {
 public:
  static constexpr std::int64_t timeout_ns = 20'000'000'000;
  // What a rank does once it has joined; it leaves the job when that has ended.
  using Part = std::function<sys::Task<Status>(std::shared_ptr<ControlNode>)>;

  SimulatedRanks(int ranks, const sys::SimulationOptions& options, Part part)
      : simulation(options), outcomes(static_cast<std::size_t>(ranks)), part_(std::move(part)) {
    for (int rank = 0; rank < ranks; ++rank) simulation.add_process("host");
    for (int rank = 0; rank < ranks; ++rank) simulation.start(rank, run(rank));
  }

  sys::Simulation simulation;
  std::vector<Status> outcomes;  // by rank

 private:
  sys::Task<void> run(int rank) {
    BootstrapOptions options;
    options.rank = rank;
    options.world_size = static_cast<int>(outcomes.size());
    options.rendezvous = "tcp://host:29500";
    options.secret = "a secret";
    options.timeout_ns = timeout_ns;
    SelfDescription self;
    self.host = "host";
    Result<Joined> joined =
        co_await join_job(simulation.world(rank), std::move(options), self, nullptr);
    Status& outcome = outcomes[static_cast<std::size_t>(rank)];
    if (!joined.ok())
      outcome = joined.take_error();
    else
      outcome = co_await part_(std::move(joined->node));
  }

  const Part part_;
};

}  // namespace unisono::comm
