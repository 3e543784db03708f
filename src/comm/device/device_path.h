// Calls on CUDA streams: by kernels, by copy engines, or staged through host memory.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "algorithm/phases.h"
#include "comm/device/connections.h"
#include "comm/device/staging.h"
#include "comm/run/call_path.h"
#include "comm/run/host_path.h"

namespace unisono::comm {

class DevicePath final : public CallPath {
 public:
  // Collective over `group`, as DeviceConnections::make() is. `host` outlives it.
  static Result<std::unique_ptr<DevicePath>> make(const std::shared_ptr<Job>& job,
                                                  ControlGroup& group,
                                                  DeviceConnections::Identity identity, int ordinal,
                                                  HostPath& host,
                                                  std::span<const Registered> registered);

  Status check(const CallView& call) const override;
  Result<Plans*> plans_for(Collective collective, CallOptions& options) const override;
  Status prepare(std::span<const Message> messages, const CallOptions& options,
                 Task& task) override;
  Plans* plans() const override { return plans_.get(); }
  void report(MemoryReport& report) const override;
  void close() override { connections_->close(); }

  DeviceConnections& connections() const { return *connections_; }
  // Gives back plans and connections, which resume() makes anew. With the scheduler's turn.
  void suspend();
  Status resume(std::span<const Registered> registered);

 private:
  DevicePath(std::shared_ptr<Job> job, HostPath& host, int rank, int ranks,
             std::unique_ptr<DeviceConnections> connections)
      : job_(std::move(job)),
        host_(host),
        rank_(rank),
        ranks_(ranks),
        connections_(std::move(connections)) {}
  Status make_plans(std::span<const Registered> registered);
  Result<std::unique_ptr<Plans>> plans_of_kernels();
  // Mixed with kernels inside nodes, where plans have phases, or without.
  Result<std::unique_ptr<Plans>> staged_plans(bool is_mixed);
  std::optional<algorithm::RankPhases> phases_of(const algorithm::Entry& entry,
                                                 const algorithm::Request& request) const;
  // By kernels, over ring links to some ranks.
  Result<std::unique_ptr<Plans>> plans_of_rings();
  std::unique_ptr<Plans> plans_of_copy_engines();
  // Fills in what the communicator's say; with no more SMs than ranks that share a device have.
  void settle(CallOptions& options) const;
  // Whether calls are staged although there are ring links: with so many ranks the device does not
  // run a thread block for each at once, or a launch has no room for their counts.
  bool exceeds_device(Collective collective) const;
  // Whether a collective with these options goes through host memory.
  bool is_staged(const CallOptions& options) const;

  std::shared_ptr<Job> job_;
  HostPath& host_;
  int rank_;
  int ranks_;
  std::unique_ptr<DeviceConnections> connections_;
  std::unique_ptr<Staging> staging_;     // where devices do not reach each other
  std::unique_ptr<Plans> plans_;         // by kernels, mixed, or staged
  std::unique_ptr<Plans> no_sms_plans_;  // by copy engines, or staged
};

}  // namespace unisono::comm
