// Calls in host memory.
#pragma once

#include <memory>
#include <vector>

#include "comm/run/call_path.h"
#include "comm/run/connections.h"
#include "comm/run/point_to_point.h"

namespace unisono::comm {

class HostPath final : public CallPath {
 public:
  struct Identity {
    std::uint64_t communicator = 0;
    std::uint32_t epoch = 0;
    int rank = 0;
  };
  // `world_ranks` outlives it.
  static Result<std::unique_ptr<HostPath>> make(const std::shared_ptr<Job>& job,
                                                const Identity& identity,
                                                const std::vector<int>& world_ranks,
                                                topo::Placement placement);

  Status check(const CallView&) const override { return {}; }
  Result<Plans*> plans_for(Collective collective, CallOptions& options) const override;
  Status prepare(std::span<const Message> messages, const CallOptions&, Task& task) override {
    return messages_.prepare(messages, task);
  }
  Plans* plans() const override { return plans_.get(); }
  void report(MemoryReport& report) const override;
  void close() override { connections_.close(); }

  Connections& connections() { return connections_; }
  PointToPoint& messages() { return messages_; }
  // Makes a program ready for the host's engine, on connections() or on what is made of them. The
  // buffers of its calls lie as the program's header says.
  Result<std::unique_ptr<engine::Execution>> make_execution(const Plans::Program& made,
                                                            engine::Resources& resources);
  std::shared_ptr<const EngineModel> model() const {
    return host_model(job_->fifo_options(), job_->host_traits());
  }
  // What the calls of a path by way of host memory choose from.
  Result<Selection> make_selection(topo::Placement placement,
                                   std::shared_ptr<const EngineModel> model) const;
  int usable_slots() const { return job_->fifo_options().usable_slots(); }

 private:
  // The same for calls in place or not, whichever the program is: what differs is relocated.
  Result<std::unique_ptr<engine::Execution>> make_relocated(const Plans::Program& made);
  HostPath(const std::shared_ptr<Job>& job, const Identity& identity,
           const std::vector<int>& world_ranks, int nodes);

  std::shared_ptr<Job> job_;
  int nodes_;
  Connections connections_;
  PointToPoint messages_;
  std::unique_ptr<Plans> plans_;
};

}  // namespace unisono::comm
