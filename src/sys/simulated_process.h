// The world as one process of a simulation sees it. For simulation.cc and simulated_world.cc alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>

#include "sys/simulated_world.h"

namespace unisono::sys {

class SimulatedWorld final : public World {
 public:
  SimulatedWorld(Simulation& simulation, int process, std::string host, std::uint64_t seed)
      : World(simulation.scheduler_),
        simulation_(simulation),
        process_(process),
        host_(std::move(host)),
        random_(seed) {}

  std::int64_t now_ns() const override;
  Status fill_random(std::span<std::byte> bytes) override {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_());
    return {};
  }
  std::string own_host() override { return host_; }
  Result<std::unique_ptr<Listener>> listen(const Address& address) override;
  Task<Result<std::unique_ptr<Stream>>> connect(const Address& address,
                                                std::int64_t deadline_ns) override;
  Result<std::string> read_file(const std::string& path, std::size_t most_bytes,
                                bool private_only) override;
  Status publish_file(const std::string& path, std::string_view content) override;
  void remove_file(const std::string& path) override { simulation_.files_.erase(path); }
  // Tasks are touched between events only, and so is everything else.
  void post(std::function<void()> action) override { action(); }
  Result<std::unique_ptr<Thread>> start_thread(std::string_view what,
                                               std::function<void()> run) override;
  std::unique_ptr<Condition> make_condition() override;
  void yield() override;
  void sleep(std::int64_t at_most_ns, std::span<const int> event_descriptors) override;
  bool is_real() const override { return false; }
  Result<std::shared_ptr<std::byte>> share_memory(const std::string& name,
                                                  std::size_t bytes) override;
  void remove_shared_name(const std::string& name) override {
    simulation_.shared_memory_.erase({host_, name});
  }
  ProcessIdentity process() override;
  std::uint64_t address_of(void* data, std::size_t bytes) override;
  std::byte* find_memory(const ProcessIdentity& owner, std::uint64_t address) override;
  Status write_memory(const ProcessIdentity& owner, std::uint64_t address,
                      std::span<const std::byte> bytes) override;
  Status read_memory(const ProcessIdentity& owner, std::uint64_t address,
                     std::span<std::byte> bytes) override;
  std::string host_identity() override { return host_; }
  int processors() override { return 64; }  // more than ranks, as a rule

 private:
  // Memory of another process of this host, in two parts, before each of which this one may lose
  // the processor. move(there, offset, bytes) copies.
  template <class Move>
  Status move_memory(const ProcessIdentity& owner, std::uint64_t address, std::size_t bytes,
                     std::string_view what, Move move);

  friend class Simulation;
  friend class SimulatedStream;
  friend class SimulatedListener;
  friend class SimulatedCondition;
  friend class SimulatedThread;
  void drive(Task<void>& task) override;
  // Its streams and listeners end.
  void cut_off();

  // When the processor has done so much more than it has to do already.
  std::int64_t spend(std::int64_t cost_ns) {
    busy_until_ns_ = std::max(busy_until_ns_, simulation_.now_ns_) + cost_ns;
    return busy_until_ns_;
  }
  std::int64_t cost_of(std::size_t bytes) const {
    const ProcessCosts& costs = simulation_.options_.costs;
    return costs.message_ns + static_cast<std::int64_t>(static_cast<double>(bytes) * costs.byte_ns);
  }
  void open_connection() {
    traffic_.most_connections = std::max(traffic_.most_connections, ++traffic_.connections);
  }

  Simulation& simulation_;
  const int process_;
  const std::string host_;
  std::mt19937_64 random_;
  int next_port_ = 32768;
  bool is_alive_ = true;
  bool is_host_lost_ = false;
  int running_ = 0;
  // Those that its objects have not closed when it dies, by the order in which they were made.
  std::map<std::uint64_t, class SimulatedStream*> streams_;
  std::map<std::uint64_t, class SimulatedListener*> listeners_;
  std::int64_t stopped_until_ns_ = 0;
  WaitQueue events_;
  // Of the fiber that runs: how far its looks at the clock have taken it.
  mutable std::int64_t ahead_ns_ = 0;
  std::int64_t busy_until_ns_ = 0;
  Traffic traffic_;
  TaskScope tasks_;
};

}  // namespace unisono::sys
