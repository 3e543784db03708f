// The emulated network for tests whose ranks are threads in real time: one simulation for each job,
// under a lock, whose virtual time goes on with each look.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "conformance/harness.h"
#include "sys/simulated_world.h"
#include "transport/emulated/network.h"

namespace unisono::test {

class EmulatedJob {
 public:
  explicit EmulatedJob(const transport::emulated::NetworkOptions& options)
      : simulation_({.seed = 1}), network_(simulation_, options) {}

  // That of the key: ranks with another one are in another network, and meet nobody here.
  static std::shared_ptr<EmulatedJob> of(const Key& key,
                                         const transport::emulated::NetworkOptions& options) {
    static std::mutex mutex;
    static std::map<Key, std::weak_ptr<EmulatedJob>> jobs;
    const std::lock_guard lock(mutex);
    auto job = jobs[key].lock();
    if (!job) jobs[key] = job = std::make_shared<EmulatedJob>(options);
    return job;
  }

  Result<std::unique_ptr<Transport>> make_transport(const TransportOptions& options) {
    const std::lock_guard lock(mutex_);
    const int process = simulation_.add_process("host");
    simulation_.start(process, stay(simulation_.world(process)));
    return network_.make_transport(process, options);
  }
  // Calls it when a little more time has gone by, alone.
  template <class Act>
  auto with_time(Act act) {
    const std::lock_guard lock(mutex_);
    time_ns_ += step_ns;
    simulation_.run(time_ns_);
    return act();
  }
  template <class Act>
  auto alone(Act act) {
    const std::lock_guard lock(mutex_);
    return act();
  }

 private:
  static constexpr std::int64_t step_ns = 20'000;

  // A simulation ends with its last task.
  sys::Task<void> stay(sys::World& world) {
    sys::Wait wait(world.scheduler(), never_, sys::no_deadline_ns);
    co_await wait;
  }

  std::mutex mutex_;
  sys::WaitQueue never_;
  std::int64_t time_ns_ = 0;
  sys::Simulation simulation_;
  transport::emulated::Network network_;
};

class SteppedConnection final : public Connection {
 public:
  SteppedConnection(std::shared_ptr<EmulatedJob> job, std::unique_ptr<Connection> inner)
      : Connection(inner->self(), inner->peer()), job_(std::move(job)), inner_(std::move(inner)) {
    region_ = inner_->region();
    signals_ = const_cast<std::atomic<std::uint64_t>*>(inner_->signals());
  }
  ~SteppedConnection() override {
    job_->alone([&] { inner_.reset(); });
  }
  Result<bool> ready() override {
    return job_->with_time([&] { return inner_->ready(); });
  }
  Result<bool> try_put(const void* source, std::size_t bytes, std::size_t peer_offset,
                       transport::Signal signal) override {
    return job_->alone([&] { return inner_->try_put(source, bytes, peer_offset, signal); });
  }
  Result<transport::RemoteMemory> expose(void* memory, std::size_t bytes) override {
    return job_->with_time([&] { return inner_->expose(memory, bytes); });
  }
  void withdraw(const transport::RemoteMemory& memory) override {
    job_->alone([&] { inner_->withdraw(memory); });
  }
  bool puts_in_place() const override { return inner_->puts_in_place(); }
  Result<bool> try_put_to(const transport::RemoteMemory& memory, std::size_t offset,
                          const void* source, std::size_t bytes,
                          transport::Signal signal) override {
    return job_->alone([&] { return inner_->try_put_to(memory, offset, source, bytes, signal); });
  }
  bool can_get() const override { return inner_->can_get(); }
  Result<bool> try_get(const transport::RemoteMemory& memory, std::size_t offset, void* destination,
                       std::size_t bytes) override {
    return job_->alone([&] { return inner_->try_get(memory, offset, destination, bytes); });
  }
  std::uint64_t gets_started() const override {
    return job_->alone([&] { return inner_->gets_started(); });
  }
  std::uint64_t gets_completed() const override {
    return job_->alone([&] { return inner_->gets_completed(); });
  }
  std::uint64_t puts_started() const override {
    return job_->alone([&] { return inner_->puts_started(); });
  }
  std::uint64_t puts_completed() const override {
    return job_->alone([&] { return inner_->puts_completed(); });
  }
  bool can_read_peer() const override { return inner_->can_read_peer(); }
  Status read_peer(void* destination, std::uint64_t peer_address, std::size_t bytes) override {
    return inner_->read_peer(destination, peer_address, bytes);
  }
  Status progress() override {
    return job_->with_time([&] { return inner_->progress(); });
  }
  Status check_peer() override {
    return job_->with_time([&] { return inner_->check_peer(); });
  }
  void abort(Fault fault) override {
    job_->alone([&] { inner_->abort(fault); });
  }
  std::size_t memory_bytes() const override { return inner_->memory_bytes(); }

 private:
  const std::shared_ptr<EmulatedJob> job_;
  std::unique_ptr<Connection> inner_;
};

class SteppedTransport final : public Transport {
 public:
  SteppedTransport(std::shared_ptr<EmulatedJob> job, std::unique_ptr<Transport> inner)
      : job_(std::move(job)), inner_(std::move(inner)) {}
  std::string_view name() const override { return inner_->name(); }
  std::string address() const override { return inner_->address(); }
  Result<std::unique_ptr<Connection>> connect(const ConnectionRequest& request) override {
    auto made = job_->alone([&] { return inner_->connect(request); });
    if (!made.ok()) return made.take_error();
    return std::unique_ptr<Connection>(std::make_unique<SteppedConnection>(job_, std::move(*made)));
  }
  Status progress() override {
    return job_->with_time([&] { return inner_->progress(); });
  }

 private:
  const std::shared_ptr<EmulatedJob> job_;
  const std::unique_ptr<Transport> inner_;
};

inline Factory emulated(std::string name, const transport::emulated::NetworkOptions& options) {
  return {.name = std::move(name),
          .make = [options](const TransportOptions& with) -> Result<std::unique_ptr<Transport>> {
            auto job = EmulatedJob::of(with.key, options);
            auto made = job->make_transport(with);
            if (!made.ok()) return made.take_error();
            return std::unique_ptr<Transport>(
                std::make_unique<SteppedTransport>(std::move(job), std::move(*made)));
          }};
}

}  // namespace unisono::test
