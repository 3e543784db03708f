// One rank's way into the job. For join.cc and reach_parent.cc alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/control/dial.h"
#include "comm/join/assembly.h"
#include "comm/join/host_rendezvous.h"
#include "comm/join/join.h"
#include "comm/join/reaching.h"
#include "comm/join/reception.h"

namespace unisono::comm {

// With a file for a rendezvous, ranks with so many below them write files of their own, so that no
// rank serves many. A rank finds its parent in two steps then.
inline constexpr int least_below_gate = 32;

Result<std::uint64_t> random_number(sys::World& world);

class Joining {
 public:
  Joining(sys::World& world, BootstrapOptions options, SelfDescription self,
          std::unique_ptr<sys::Listener> listener)
      : world_(world),
        options_(std::move(options)),
        self_(std::move(self)),
        listener_(std::move(listener)),
        deadline_ns_(world.now_ns() + options_.timeout_ns),
        reaching_(options_.rank, "rank 0", options_.rendezvous, options_.is_listening) {}

  sys::Task<Result<Joined>> run();

 private:
  // Whom this rank asks for its parent.
  struct Step {
    int rank = 0;
    std::optional<sys::Address> address;  // as it was told; else where the rendezvous says
    bool is_host = false;                 // not rank 0, but a rank of this host
    bool enrols = false;
  };

  sys::Task<Status> assemble();
  Status begin_job();
  Status publish(const std::string& path, const std::string& secret);
  Status open_gate();
  Status find_secret();
  Status start_node(std::unique_ptr<sys::Listener> listener);
  sys::Task<Status> reach_parent();
  Step first_step();
  sys::Task<Status> wait_for_turn();
  std::int64_t wait_of(int rank, std::int64_t together) const;
  sys::Task<Status> pause(std::int64_t& pause_ns);
  sys::Task<Attempt> connect(const Step& step, std::int64_t deadline_ns);
  sys::Task<Result<Directions>> visit(const Step& step, std::int64_t deadline_ns, Attempt& attempt);
  Status follow(const Directions& directions, Step& step);
  Result<sys::Address> address_of(const Step& step);
  Key own_key() const { return enrolment_key(secret_, options_.shared_key); }
  sys::Task<Status> enrol(std::unique_ptr<Channel> channel, int at);
  Status take(const Frame& frame, std::unique_ptr<Channel> channel, int from);
  void report(const Error& error);
  void set_job(std::uint64_t job, const Key& key);
  std::string file_of(int rank) const {
    return rank == 0 ? place_.path : str(place_.path, ".", rank);
  }
  int gate_of_this_rank() const;
  bool is_gate() const { return place_.is_file && tree_->subtree().size() > least_below_gate; }
  // Whether ranks gather on their hosts before they visit rank 0.
  bool is_gathered() const {
    return !place_.is_file && options_.world_size > options_.most_addresses;
  }
  WireProtection wire() const { return {options_.protection, options_.protects_loopback}; }

  sys::World& world_;
  BootstrapOptions options_;
  const SelfDescription self_;
  std::unique_ptr<sys::Listener> listener_;
  const std::int64_t deadline_ns_;
  Reaching reaching_;
  RendezvousPlace place_;
  std::optional<TreePlace> tree_;
  std::string secret_;
  std::shared_ptr<ControlNode> node_;
  std::shared_ptr<Reception> reception_;
  std::vector<std::string> published_;
  bool gathers_ = false;                  // on this host, first
  std::unique_ptr<HostRendezvous> host_;  // where others of it come to this rank
  std::optional<Error> early_;            // before this rank could tell it
  std::optional<Assembly> assembly_;
  Roster roster_;
};

}  // namespace unisono::comm
