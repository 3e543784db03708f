// The ring links of a communicator's device (transport/ring), and the thread that forwards for
// them.
#pragma once

#include <unisono/communicator.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "comm/job/job.h"
#include "device/link.h"
#include "transport/ring/forwarder.h"

namespace unisono::comm {

// Where they have been measured, each node has one rank.
enum class RingUse : std::uint8_t { where_measured, always, never };
Result<RingUse> ring_use_from(const Settings& settings);

// Only the thread that drives the communicator, except where a comment says otherwise.
class RingLinks {
 public:
  RingLinks(std::shared_ptr<Job> job, std::shared_ptr<const sys::cuda::Device> device, int rank,
            const std::vector<int>& world_ranks, const transport::ring::Geometry& geometry)
      : job_(std::move(job)),
        device_(std::move(device)),
        rank_(rank),
        world_ranks_(world_ranks),
        geometry_(geometry) {}

  // The link to `peer` on `channel`, which kernels may look up; nullptr while it is being made.
  Result<const transport::ring::Link*> find(const transport::ConnectionKey& key, int peer,
                                            int channel);
  // Advances links that are being made.
  Status progress();
  // A launch begins; into a graph, which may replay it at any time.
  void begin_launch(bool is_captured);
  // All launches are over.
  void end_launches();
  // Why the first link failed: its error, or that its peer is lost or has left.
  Status failure() const;
  // Any thread.
  void abort(transport::Fault fault);
  // Any thread.
  void report(MemoryReport& report) const;
  // Waits until all that kernels have stored has left, unless the links were aborted, and closes
  // them; only when no launch is under way.
  void clear();

 private:
  struct Entry {
    std::unique_ptr<transport::ring::Link> link;
    transport::Transport* transport;
    bool is_ready = false;
  };
  using Key = std::pair<int, int>;  // peer, channel

  Result<Entry> make_entry(const transport::ConnectionKey& key, int peer);

  const std::shared_ptr<Job> job_;
  const std::shared_ptr<const sys::cuda::Device> device_;
  const int rank_;
  const std::vector<int>& world_ranks_;
  const transport::ring::Geometry geometry_;
  mutable std::mutex mutex_;  // guards the list against other threads
  std::map<Key, Entry> entries_;
  bool is_aborted_ = false;
  transport::Fault fault_;
  // From the first link on; destroyed before the links.
  std::unique_ptr<transport::ring::Forwarder> forwarder_;
};

}  // namespace unisono::comm
