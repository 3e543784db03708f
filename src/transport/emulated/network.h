// A network between the processes of a simulation, in virtual time. Puts arrive in any order, their
// bytes leave the source at any time before that, and a signal is stored after all the bytes put
// before it: no more is promised than transport.h does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "sys/simulated_world.h"
#include "transport/transport.h"

namespace unisono::transport::emulated {

struct NetworkOptions {
  // Each put, and each word about a connection, takes a time drawn evenly from here, and its bytes
  // as long as the bandwidth says.
  std::int64_t min_latency_ns = 2'000;
  std::int64_t max_latency_ns = 30'000;
  std::int64_t bytes_per_second = 10'000'000'000;
  // Per connection and direction, before puts have to wait.
  std::size_t most_underway_bytes = std::size_t{1} << 20;
  // What arrives is stored only once its receiver looks (Connection::progress), as with sockets.
  bool needs_progress = false;
  // Of so many puts, one is interrupted: other threads of its process run before it goes on.
  std::uint64_t puts_between_interrupts = 64;
};

class Wire;

// Outlives the transports. Its faults come from the simulation: deaths, cuts, stops.
class Network {
 public:
  Network(sys::Simulation& simulation, const NetworkOptions& options)
      : simulation_(simulation), options_(options) {}

  // Of the simulation's process of that number.
  Result<std::unique_ptr<Transport>> make_transport(int process, const TransportOptions& options);

  // The connections that the two processes have then end, as when a switch resets them.
  void reset(int process, int other);
  // As Simulation::kill, and with what it means for connections.
  void kill(int process, sys::Death death);

  // Connections whose end at a living process, or at this one, has not been destroyed.
  int open_ends(std::optional<int> process = std::nullopt) const;
  // Ends that were destroyed, without having given up, while memory was still exposed on them.
  int ends_left_exposed() const { return ends_left_exposed_; }

 private:
  friend class Wire;
  friend class EmulatedTransport;
  // Perhaps now.
  void interrupt(int process);
  using Name = std::tuple<std::uint64_t, std::uint32_t, std::uint32_t, int, int>;

  Result<std::unique_ptr<Connection>> connect(int process, int peer_process,
                                              const ConnectionRequest& request);

  // Where the keys of one end's exposed memory start: no two ends share one.
  std::uint64_t fresh_keys() { return ++ends_made_ << 32; }

  sys::Simulation& simulation_;
  std::uint64_t ends_made_ = 0;
  int ends_left_exposed_ = 0;
  const NetworkOptions options_;
  std::map<Name, std::weak_ptr<Wire>> wires_;
  std::map<int, std::shared_ptr<const OpenEpochs>> epochs_;  // by process
};

}  // namespace unisono::transport::emulated
