// The world as one process of a simulation sees it. For simulation.cc and simulated_world.cc alone.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>

#include "sys/simulated_world.h"

namespace unisono::sys {

class SimulatedWorld final : public World {
 public:
  SimulatedWorld(Simulation& simulation, std::string host, std::uint64_t seed)
      : World(simulation.scheduler_),
        simulation_(simulation),
        host_(std::move(host)),
        random_(seed) {}

  std::int64_t now_ns() const override { return simulation_.now_ns_; }
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

 private:
  friend class Simulation;
  friend class SimulatedStream;
  friend class SimulatedListener;

  Simulation& simulation_;
  const std::string host_;
  std::mt19937_64 random_;
  int next_port_ = 32768;
  bool is_alive_ = true;
  bool is_host_lost_ = false;
  int running_ = 0;
  TaskScope tasks_;
};

}  // namespace unisono::sys
