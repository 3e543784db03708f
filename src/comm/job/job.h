// What init made and every communicator split from it shares: who the ranks are, and how to
// reach them.
#pragma once

#include <unisono/communicator.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/key.h"
#include "base/settings.h"
#include "base/wire.h"
#include "comm/job/host_traits.h"
#include "comm/join/bootstrap.h"
#include "comm/join/location.h"
#include "sys/cuda/device.h"
#include "transport/fifo.h"
#include "transport/table.h"
#include "transport/transport.h"

namespace unisono::comm {

// What a job lives in instead of the real world: its processes' network is a transport, too.
struct Surroundings {
  std::shared_ptr<sys::World> world;
  transport::MakeTransport make_network;
};

class Job {
 public:
  // Bootstraps, checks that all ranks agree on what they must agree on, and makes the transports.
  // `listener` is rank 0's, if a launcher had it made before, and `is_listening` says so to the
  // other ranks (BootstrapOptions).
  static Result<std::shared_ptr<Job>> join(const InitOptions& options,
                                           std::optional<RendezvousListener> listener = {},
                                           bool is_listening = false);
  // This rank cannot join. Tells the others, whose join ends with an error that names it; takes a
  // few seconds at most, and ranks that come later are not told.
  static void decline(const InitOptions& options, const Error& why,
                      std::optional<RendezvousListener> listener = {}, bool is_listening = false);
  static Result<std::shared_ptr<Job>> join_in(const Surroundings& surroundings,
                                              const InitOptions& options);
  sys::World& sys_world() const { return *sys_world_; }

  // The identifier of its world communicator.
  std::uint64_t id() const { return id_; }
  int rank() const { return rank_; }
  int size() const { return roster_.ranks(); }
  // The name of this rank's node, and the numbers of all ranks' nodes and hosts.
  const std::string& node_name() const { return node_name_; }
  const Roster& roster() const { return roster_; }
  // Where all nodes of the roster are; empty where that is not known.
  const topo::Levels& levels() const { return levels_; }
  const transport::FifoOptions& fifo_options() const { return fifo_options_; }
  const Settings& settings() const { return settings_; }
  std::int64_t timeout_ns() const { return call_defaults_.timeout.count(); }
  // For making communicators from this job's.
  std::int64_t bootstrap_timeout_ns() const { return bootstrap_timeout_ns_; }
  // Owns the control group of all ranks until the first communicator takes it.
  std::unique_ptr<ControlGroup> take_world() { return std::move(world_); }
  // Ranks of the job on this host: how many share its cores.
  int ranks_on_host() const { return ranks_on_host_; }
  const HostTraits& host_traits() const { return host_traits_; }
  // The name of the shared page of a communicator's ranks on a node, which only the job's ranks can
  // tell.
  std::string status_page_name(std::uint64_t communicator, std::uint32_t epoch, int node) const;

  // This rank's transport to a rank, and that rank's address in it: looked up unless it is known.
  Result<const transport::Route*> route_to(int world_rank);
  // That rank's address in TransportSet::on_host().
  Result<std::string> address_on_host(int world_rank);
  // Between GPUs of this host, for kernels on `device`; made once for each device.
  Result<transport::Transport*> nvlink(const std::shared_ptr<const sys::cuda::Device>& device);
  // Whether another rank of this process may still use device memory of this one.
  bool is_used_in_this_process();
  bool is_on_this_host(int world_rank) const {
    return roster_.host_of(world_rank) == roster_.host_of(rank_);
  }
  // The device that calls on streams have; -1: that of the first such call's stream.
  int device() const { return device_; }
  // What calls take where they leave it open: the timeout, and of calls on streams the rest.
  const CallOptions& call_defaults() const { return call_defaults_; }
  bool has_signals() const { return has_signals_; }
  // Poll as readable when there is something from ranks that do not share memory with this one.
  const std::vector<int>& event_descriptors() const { return transports_.event_descriptors(); }

 private:
  // A rank that this one can reach.
  struct Peer {
    transport::Contact contact;  // until the route is chosen
    transport::Route route;
    std::string address_on_host;
  };
  explicit Job(Settings settings) : settings_(std::move(settings)) {}
  static Result<Peer> read_peer(int world_rank, WireReader& reader);
  Status choose_route(int world_rank, Peer& peer) const;
  Result<const Peer*> peer_of(int world_rank);
  Status set_policy(const InitOptions& options);
  static Result<std::shared_ptr<Job>> make(const InitOptions& options);
  Status introduce(const BootstrapOptions& bootstrap_options,
                   std::optional<RendezvousListener> listener, const Surroundings& surroundings);
  Status read_levels();
  Status exchange_contacts(Status made, const BootstrapOptions& options);

  const Settings settings_;
  std::shared_ptr<sys::World> sys_world_;
  std::uint64_t id_ = 0;
  int rank_ = 0;
  Key status_page_key_{};
  std::string named_transport_;
  std::int64_t bootstrap_timeout_ns_ = 0;
  transport::FifoOptions fifo_options_;
  std::string node_name_;
  OwnLocation location_;
  Roster roster_;
  topo::Levels levels_;
  PublishedRecords records_;
  std::mutex peers_mutex_;
  std::map<int, Peer> peers_;  // that this rank has had a use for
  int ranks_on_host_ = 1;
  HostTraits host_traits_;
  int device_ = -1;
  CallOptions call_defaults_;
  bool has_signals_ = false;
  transport::TransportSet transports_;
  std::mutex nvlink_mutex_;
  std::map<int, std::unique_ptr<transport::Transport>> nvlink_;  // by device
  std::unique_ptr<ControlGroup> world_;
};

}  // namespace unisono::comm
