// What calls on CUDA streams need of their communicator: the engine on its device, and the
// connections between devices, made when a plan first needs them.
//
// Threads: only the one that drives the communicator, except where a comment says otherwise.
#pragma once

#include <unisono/communicator.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "comm/control/members.h"
#include "comm/device/device_launches.h"
#include "comm/device/mappings.h"
#include "comm/device/ring_links.h"
#include "comm/device/signals.h"
#include "comm/job/job.h"
#include "comm/join/bootstrap.h"
#include "comm/run/stream_calls.h"
#include "engine/gpu/execution.h"
#include "engine/gpu/ll128_links.h"
#include "trace/record.h"
#include "transport/nvlink/registrations.h"

namespace unisono::comm {

class DeviceConnections : public engine::gpu::Resources, public StreamCalls {
 public:
  struct Identity {
    std::uint64_t communicator = 0;
    std::uint32_t epoch = 0;
    int rank = 0;
  };
  // Collective over `group`: says on every rank alike what is wrong with any of them: no driver, no
  // kernels, several hosts. `placement` is the plans'.
  static Result<std::unique_ptr<DeviceConnections>> make(std::shared_ptr<Job> job,
                                                         ControlGroup& group, Identity identity,
                                                         int ordinal,
                                                         const topo::Placement& placement);
  ~DeviceConnections() override;

  engine::gpu::Engine& engine() override { return *engine_; }
  const sys::cuda::Device& device() const { return engine_->device(); }
  const std::shared_ptr<const sys::cuda::Device>& shared_device() const {
    return engine_->shared_device();
  }
  // Whether some devices cannot access each other's memory, on all ranks alike: calls go through
  // host memory then (comm/device/staging.h), and connections are at most inside nodes.
  bool is_staged() const { return !why_staged_.empty(); }
  // Whether, although they are staged, all devices of each node access each other's memory, and
  // there are nodes of several; on all ranks alike.
  bool is_mixed() const { return is_mixed_; }
  // Whether, although they are staged, kernels run collectives, over ring links to some ranks; on
  // all ranks alike.
  bool has_rings() const { return rings_ != nullptr; }
  // Why, in a sentence; empty where they are not.
  const std::string& why_staged() const { return why_staged_; }
  // That every rank's device runs at once.
  int thread_blocks() const { return thread_blocks_; }
  // The SMs that a call may take so that all ranks that share a device fit on it. 0: no limit.
  int most_sms() const { return most_sms_; }
  Result<transport::Connection*> link(const Link& wanted) override;
  Result<std::optional<device::Link>> interpreter_link(const Link& wanted) override;
  Result<sys::cuda::DeviceAddress> message_link(const Link& wanted) override;
  bool is_ring_peer(int peer) const override {
    return rings_ && is_ring_peer_[static_cast<std::size_t>(peer)];
  }
  Status progress() override;
  Result<sys::cuda::DeviceAddress> scratch(std::size_t bytes) override;
  void find_peer_mappings(const void* data, std::size_t bytes,
                          std::span<sys::cuda::DeviceAddress> by_rank, bool is_captured) override {
    mappings_.find(data, bytes, by_rank, is_captured);
  }
  Result<engine::gpu::OpenLaunch> open(sys::cuda::StreamHandle* stream) override {
    return launches_->open(stream);
  }

  // Misuse if the stream is of another device, or is captured though the call is staged. Any
  // thread.
  Status check_stream(void* stream, bool is_staged) const;
  // Misuse if it is not memory that kernels on the device may use. Any thread.
  Status check_buffer(std::string_view which, const void* data, int rank) const;

  void share_memory() override { mappings_.exchange(); }
  // Makes memory known to the others before it is first used, and waits until they have mapped it,
  // `patience_ns` at most. Misuse if it is not memory of the device; an environment error if the
  // driver cannot share it. Any thread.
  Status register_memory(const void* data, std::size_t bytes, std::int64_t patience_ns);

  // Copies to where a peer's memory is mapped here. Any thread.
  Status copy_to_peer(sys::cuda::StreamHandle* stream, sys::cuda::DeviceAddress target,
                      const void* data, std::size_t bytes) const;

  // Null: kernels stamp nothing. Any thread.
  KernelStamps* stamps() const { return launches_->stamps(); }
  bool is_busy() const override { return launches_->is_busy(); }
  Launch last_launch() const override { return launches_->last(); }
  std::uint64_t ended_launches() override { return launches_->ended(); }
  void complete_fallbacks(std::vector<trace::Entry>& entries) const override {
    launches_->complete_fallbacks(entries);
  }
  Status check_device() const override { return launches_->check_device(); }
  Status failure() const override;
  std::vector<trace::Waiting> long_waits() const override { return engine_->long_waits(); }
  // Signals, which outlive this, if there are any: their waits on streams are looked after here.
  void watch(Signals* signals) { signals_ = signals; }
  void look(std::int64_t now_ns) override;
  Status check_peers() override;
  void abort(transport::Fault fault) override;
  void report(MemoryReport& report) const;
  // Waits for what is on streams, graphs that were launched included, and closes all connections;
  // only when no call is pending.
  void close();
  // Waits for what is on streams, and gives back the memory of connections and scratch; what peers
  // have mapped of users' memory stays. Only when no call is pending on any rank. Once all ranks
  // have, resume() lets connections be made anew.
  void suspend();
  void resume() { ++generation_; }

 private:
  struct Entry {
    int peer;
    int channel;
    std::size_t device_bytes;
    bool ready;
    std::unique_ptr<transport::Connection> connection;
  };
  using Key = std::tuple<int, int, Protocol>;  // peer, channel

  DeviceConnections(std::shared_ptr<Job> job, ControlGroup& group, Identity identity);
  Status open_device(int ordinal);
  // Every rank's word on whether it can go on, to every rank.
  Status agree(ControlGroup& group, const Status& mine) const;
  // What the first rank that has one gives as its reason, empty where none does; on all ranks
  // alike.
  Result<std::pair<int, std::string>> first_reason(ControlGroup& group,
                                                   const std::string& mine) const;
  // Refuses LL128 on all ranks where one must not use it: `why_not` is this rank's reason.
  Status agree_on_ll128(ControlGroup& group, const std::string& why_not) const;
  Status reach_all(ControlGroup& group, const topo::Placement& placement);
  // Agrees on whether calls are staged, and mixed: why this rank does not reach all devices, and
  // why not all of its node; empty where it does.
  Status settle(ControlGroup& group, const topo::Placement& placement, const std::string& reason,
                const std::string& reason_on_node);
  Status make_entry(const Link& wanted);
  Status make_registrations();
  transport::ConnectionKey key_of(std::uint32_t channel) const;
  transport::ConnectionKey key_of(const Link& wanted) const;

  std::shared_ptr<Job> job_;
  Identity identity_;
  Signals* signals_ = nullptr;
  // Names the connections: another one after each resume().
  std::uint64_t generation_ = 0;
  const std::shared_ptr<const Members> members_;
  const std::vector<int>& world_ranks_;
  std::unique_ptr<engine::gpu::Engine> engine_;
  int thread_blocks_ = 0;
  engine::gpu::PathTable path_table_;
  engine::gpu::Ll128Use ll128_use_ = engine::gpu::Ll128Use::where_safe;
  int most_sms_ = 0;
  std::string why_staged_;
  bool is_mixed_ = false;
  std::unique_ptr<RingLinks> rings_;
  std::vector<bool> is_ring_peer_;  // by rank
  transport::Transport* transport_ = nullptr;
  // Guards the list against report() and abort() from other threads.
  mutable std::mutex mutex_;
  std::map<Key, Entry> entries_;
  bool aborted_ = false;
  transport::Fault fault_;
  std::size_t next_checked_ = 0;
  // What was given before is kept until the end: calls may still use it, and freeing waits for all
  // that runs on the device, which may wait for this rank.
  std::vector<sys::cuda::Memory> scratch_;
  int index_on_device_ = 0;
  Mappings mappings_;
  std::unique_ptr<DeviceLaunches> launches_;
};

}  // namespace unisono::comm
