// One process's control plane in some world: one listener, links to other ranks made when first
// needed, a mailbox of messages that arrived and wait to be received.
//
// Several communicators share it. A message says whose it is (MessageKey), and waits in the mailbox
// until that communicator's call takes it. Not thread-safe: all of it runs on the world's loop.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "comm/bootstrap_messages.h"
#include "sys/world.h"

namespace unisono::comm {

// Names a failure's scope: one communicator in one epoch. The job's own, which the bootstrap uses,
// is {job, 0}.
struct GroupId {
  std::uint64_t communicator = 0;
  std::uint32_t epoch = 0;
  auto operator<=>(const GroupId&) const = default;
};

// How far a member had got in a group's exchanges when it met a failure.
struct ExchangePlace {
  std::uint64_t sequence = 0;
  std::uint32_t round = 0;
  auto operator<=>(const ExchangePlace&) const = default;
};

class ControlNode {
 public:
  ControlNode(sys::World& world, int rank, int world_size, std::string secret);
  ~ControlNode();
  ControlNode(const ControlNode&) = delete;
  ControlNode& operator=(const ControlNode&) = delete;

  sys::World& world() { return world_; }
  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  std::string_view secret() const { return secret_; }
  std::uint64_t job() const { return job_; }

  // Accepts from now on. `on_enrol` serves the connections that enrol, until end_enrolment() (rank
  // 0 only, else empty).
  using EnrolHandler =
      std::function<sys::Task<void>(std::unique_ptr<sys::Stream>, const Enrolment&)>;
  void start(std::unique_ptr<sys::Listener> listener, EnrolHandler on_enrol);
  void end_enrolment() { on_enrol_ = nullptr; }
  const sys::Address& address() const { return listener_->address(); }

  // Links are accepted once the job's identity is known.
  void set_job(std::uint64_t job);
  void set_address(int peer, const std::string& address);

  // Makes a link to the peer if there is none: connects if its address is known, else waits for it
  // to connect.
  sys::Task<Status> link(int peer, GroupId group, std::int64_t deadline_ns);
  sys::Task<Status> send(int peer, const MessageKey& key, std::span<const std::byte> payload,
                         std::int64_t deadline_ns);
  sys::Task<Result<std::vector<std::byte>>> receive(int peer, const MessageKey& key,
                                                    std::int64_t deadline_ns);
  // Makes sure that there is, or soon will be, a link to the peer: then the end of its process is
  // seen at once. Once the deadline has passed, tries no more.
  void watch_peer(int peer, std::int64_t deadline_ns);
  // What ends a wait for this peer on behalf of this group, if anything does.
  Status check(int peer, GroupId group) const;

  // A failed group's waits end with its error. Of several failures one counts, whatever the order
  // in which they come, so that all members end with the same: an abort before what is suspected;
  // among suspicions a broken connection before a timeout, and then that of the earliest place.
  void fail(GroupId group, const Error& error, ExchangePlace place = {});
  const Error* failure(GroupId group) const;
  // Tells the group's failure to those of `peers` that this rank has a link to, as far as the
  // links take it. Who waits for this rank has a link to it.
  void spread_failure(GroupId group, std::vector<int> peers);
  // From now on messages of older epochs of this communicator are refused.
  void open_group(GroupId group);
  // Its messages are dropped, those that wait and those that come.
  void forget_group(GroupId group);

  // Notified whenever anything above may have changed.
  sys::WaitQueue& changed() { return changed_; }

 private:
  struct Link {
    int peer = -1;
    std::unique_ptr<sys::Stream> stream;
    bool is_lost = false;
    bool is_being_written = false;
    sys::WaitQueue write_turn;
  };
  struct Failure {
    Error error;
    ExchangePlace place;
  };
  using MailKey = std::pair<MessageKey, int>;  // the int: from which rank

  sys::Task<void> accept_loop();
  sys::Task<void> serve(std::unique_ptr<sys::Stream> stream);
  sys::Task<Status> serve_checked(std::unique_ptr<sys::Stream>& stream);
  sys::Task<Status> wait_for_job(std::int64_t deadline_ns);
  sys::Task<void> read_loop(Link& link);
  sys::Task<void> tell_failure(GroupId group, std::vector<int> peers);
  sys::Task<Result<std::unique_ptr<sys::Stream>>> connect_authenticated(int peer,
                                                                        std::int64_t deadline_ns);
  sys::Task<void> link_to_watch(int peer, std::int64_t deadline_ns);
  sys::Task<Result<Link*>> usable_link(int peer, GroupId group, std::int64_t deadline_ns);
  void add_link(int peer, std::unique_ptr<sys::Stream> stream);
  // The peer is lost with a link that broke; but one that was closed in order, between frames,
  // may be closed while another still brings messages.
  void lose(Link& link, const std::string& why, bool is_orderly);
  bool deposit(int peer, const MessageKey& key, std::vector<std::byte> payload);
  bool is_retired(const MessageKey& key) const;

  sys::World& world_;
  const int rank_;
  const int world_size_;
  const std::string secret_;
  const std::size_t max_message_bytes_;
  std::uint64_t job_ = 0;  // 0: not known yet
  std::unique_ptr<sys::Listener> listener_;
  EnrolHandler on_enrol_;
  int being_served_ = 0;  // connections that have not yet said what they are for

  std::map<int, std::string> addresses_;
  std::vector<std::unique_ptr<Link>> links_;
  std::map<int, Link*> link_of_peer_;
  std::set<int> connecting_;
  std::map<int, std::string> lost_;  // peers whose link broke, and how

  std::map<MailKey, std::deque<std::vector<std::byte>>> mail_;
  std::map<int, std::size_t> unclaimed_bytes_;  // in mail_, by peer
  std::map<GroupId, Failure> failures_;
  std::map<std::uint64_t, std::uint32_t> newest_epoch_;
  std::deque<GroupId> retired_;  // the latest, at most max_retired

  sys::WaitQueue changed_;
  sys::TaskScope tasks_;  // last: its tasks use everything above
};

// Reads one frame. Memory grows with what arrives: a length alone makes nobody allocate.
// `is_orderly_end` tells whether a failure was the stream's end before the frame began.
struct Frame {
  FrameHeader header;
  std::vector<std::byte> payload;
};
sys::Task<Result<Frame>> read_frame(sys::Stream& stream, std::size_t max_message_bytes,
                                    std::int64_t deadline_ns, bool* is_orderly_end = nullptr);
sys::Task<Status> write_frame(sys::Stream& stream, FrameKind kind, const MessageKey& key,
                              std::span<const std::byte> payload, std::int64_t deadline_ns);

}  // namespace unisono::comm
