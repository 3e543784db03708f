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
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/open_epochs.h"
#include "comm/control/channel.h"
#include "comm/control/handshake.h"
#include "comm/control/messages.h"
#include "sys/accepting.h"
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

// Who receives what arrives for a group apart from its exchanges' messages.
class GroupListener {
 public:
  virtual ~GroupListener() = default;
  // A failure that is news, which failure() tells; a suspicion, an ask or an answer. False: it is
  // malformed.
  virtual bool on_frame(int peer, FrameKind kind, std::span<const std::byte> payload) = 0;
};

class Directory;

class ControlNode final : sys::Admissions {
 public:
  ControlNode(sys::World& world, int rank, int world_size, const WireProtection& wire);
  ~ControlNode();
  ControlNode(const ControlNode&) = delete;
  ControlNode& operator=(const ControlNode&) = delete;

  // Peers learn that this rank leaves the job in order. The destructor says it, too.
  void say_bye();

  sys::World& world() { return world_; }
  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  const WireProtection& wire() const { return wire_; }
  std::uint64_t job() const { return job_; }
  const Key& job_key() const { return job_key_; }

  // Who serves those that enrol, where ranks below this one in the tree join.
  struct Enrolments {
    Key key;  // they prove it
    std::function<sys::Task<void>(std::unique_ptr<Channel>, const Enrolment&)> serve;
    // Where a visitor goes on.
    std::function<sys::Task<Directions>(Visitor)> direct;
    // Somebody had the key, but is a rank of this job only if something else is changed.
    std::function<void(const Error&)> disagree;
  };
  // Takes connections of those that enrol from now on, and links once the job is known.
  Status start(std::unique_ptr<sys::Listener> listener, std::optional<Enrolments> enrolments);
  bool is_started() const { return listener_ != nullptr; }
  // Who enrols from now on is told that it is too late.
  void end_enrolment() { is_enrolment_over_ = true; }
  // Why this process cannot take connections, if it has not been able to for a while.
  const std::optional<Error>& starved() const { return starved_; }
  const sys::Address& address() const { return listener_->address(); }

  // The job's identity and the key that its ranks prove to each other.
  void set_job(std::uint64_t job, const Key& key);
  void set_address(int peer, const std::string& address);
  const std::string* known_address(int peer) const;
  // Where addresses come from that are not known, and who answers other ranks' look-ups.
  void set_directory(std::unique_ptr<Directory> directory);
  bool has_directory() const { return directory_ != nullptr; }
  Directory& directory() { return *directory_; }

  // Who answers surveys from now on (survey.h), each on a connection of its own. It takes the
  // channel; where it fails, the rank that asked is told why.
  using ServeSurvey =
      std::function<Status(std::unique_ptr<Channel>& channel, std::span<const std::byte> payload)>;
  void serve_surveys(ServeSurvey serve) { serve_survey_ = std::move(serve); }

  // A connection over which both ends have learnt who the other is.
  void add_link(int peer, std::unique_ptr<Channel> channel);
  // Makes a link to the peer if there is none: connects once its address is known, unless it
  // connects first.
  sys::Task<Status> link(int peer, GroupId group, std::int64_t deadline_ns);
  sys::Task<Status> send(int peer, const MessageKey& key, std::span<const std::byte> payload,
                         std::int64_t deadline_ns);
  sys::Task<Result<std::vector<std::byte>>> receive(int peer, const MessageKey& key,
                                                    std::int64_t deadline_ns);
  // One from each of `peers`, in their order. `waits_for` is one that is awaited.
  sys::Task<Result<std::vector<std::vector<std::byte>>>> receive_all(std::vector<int> peers,
                                                                     MessageKey key,
                                                                     std::int64_t deadline_ns,
                                                                     int& waits_for);
  // Makes sure that there is, or soon will be, a link to the peer: then the end of its process is
  // seen at once. Once the deadline has passed, tries no more.
  void watch_peer(int peer, std::int64_t deadline_ns);
  bool has_link(int peer) const { return link_of_peer_.contains(peer); }
  // What ends a wait for this peer on behalf of this group, if anything does.
  Status check(int peer, GroupId group) const;
  // The same of any group.
  Status check_peer(int peer) const;
  // Whether its link broke without a bye.
  bool has_broken_off(int peer) const;

  // A failed group's waits end with its error. Of several failures one counts, whatever the order
  // in which they come, so that all members end with the same: an abort before what is suspected;
  // among suspicions a broken connection before a timeout, what all agree on before what is still
  // compared, and then that of the earliest place. Whether this one counts now.
  //
  // Exchanges end with a failure that the members still compare, which `settles_ns` says; a call,
  // which knows more than they do, goes on until it has settled.
  bool fail(GroupId group, const Error& error, ExchangePlace place = {},
            std::int64_t settles_ns = 0);
  const Error* failure(GroupId group) const;
  // How many failures have counted until now, each in place of the one before.
  std::uint64_t failures(GroupId group) const;
  const Error* settled_failure(GroupId group) const;
  // When the failure settles; 0: it has, or there is none.
  std::int64_t settles_ns(GroupId group) const;
  // Whether a failure would count.
  bool would_count(GroupId group, const Error& error, ExchangePlace place,
                   std::int64_t settles_ns) const;
  // Tells the group's failure to those of `peers` that this rank has a link to, as far as the
  // links take it. Every exchange of a group makes links to the members 1, 2, 4, ... places away,
  // so what each member passes on reaches all.
  void spread_failure(GroupId group, std::span<const int> peers);
  // The same of a frame for the group's listener. A reaction to a frame leaves when all that has
  // arrived has been read: a write to a process that has ended discards what it sent last.
  enum class When { now, after_reading };
  void spread(GroupId group, FrameKind kind, std::span<const std::byte> payload,
              std::span<const int> peers, When when = When::now);
  // When something last came from the peer over a link; 0: never.
  std::int64_t last_message_ns(int peer) const;
  // Until `listener` is detached; the one attached last counts.
  void attach(GroupId group, GroupListener& listener) { listeners_[group] = &listener; }
  void detach(GroupId group, const GroupListener& listener);
  // From now on messages of older epochs of this communicator are refused. This process is in the
  // group's epoch until the group is forgotten; once it is in newer ones alone, messages of that
  // epoch are refused whatever their communicator.
  void open_group(GroupId group);
  // Its messages are dropped, those that wait and those that come.
  void forget_group(GroupId group);
  const std::shared_ptr<OpenEpochs>& epochs() const { return epochs_; }
  // Whether no call of this process can take such messages any more.
  bool is_retired(const MessageKey& key) const;
  // These keys have messages in the mailbox.
  std::vector<MessageKey> unclaimed() const;

  // Notified whenever anything above may have changed.
  sys::WaitQueue& changed() { return changed_; }

 private:
  struct Link {
    int peer = -1;
    std::unique_ptr<Channel> channel;
    bool is_lost = false;
    bool is_being_written = false;
    sys::WaitQueue write_waiters;
  };
  using Payload = std::shared_ptr<const std::vector<std::byte>>;
  struct Failure {
    Error error;
    ExchangePlace place;
    std::int64_t settles_ns = 0;  // 0: members agree on it
    std::uint64_t number = 0;     // of those of its group that have counted, from 1
    auto order() const {
      return std::tuple(!error.aborted, error.timed_out, settles_ns > 0, place, error.peer);
    }
  };
  using MailKey = std::pair<MessageKey, int>;  // the int: from which rank

  void accept_if_ready();
  void on_admitted(sys::Admitted admitted) override;
  void on_starved(const Error* why) override;
  sys::Task<void> serve(sys::Admitted admitted);
  sys::Task<Status> serve_checked(sys::Admitted admitted);
  sys::Task<Result<Frame>> read_first(const Doorkeeper::Guest& guest, std::int64_t deadline_ns);
  sys::Task<Status> serve_visit(sys::Admitted admitted, Visitor visitor);
  sys::Task<Status> serve_enrolment(std::unique_ptr<Channel> channel, Enrolment enrolment);
  // Tells the process at the other end why the channel is closed; returns the error.
  sys::Task<Status> refuse(std::unique_ptr<Channel> channel, Error error);
  sys::Task<void> read_loop(Link& link);
  // Whether it was in order.
  bool take(Link& link, Frame& frame);
  sys::Task<void> tell(Link& link, FrameKind kind, MessageKey key, Payload payload, When when);
  void tell_linked(FrameKind kind, const MessageKey& key, std::vector<std::byte> payload,
                   std::span<const int> peers, When when);
  sys::Task<Result<std::unique_ptr<Channel>>> connect_authenticated(int peer,
                                                                    std::int64_t deadline_ns);
  sys::Task<void> link_to_watch(int peer, std::int64_t deadline_ns);
  sys::Task<Result<Link*>> usable_link(int peer, GroupId group, std::int64_t deadline_ns);
  void seek(int peer);
  // The peer is lost with a link that broke. One that it closed with a bye may be closed while
  // another still brings messages.
  void lose(Link& link, const std::string& why, bool is_orderly);
  // The peer is lost unless it has another link; and the two may have connected to each other at
  // once, so that the other one's greeting is still on its way.
  sys::Task<void> leave_to_others(Link& link);
  bool deposit(int peer, const MessageKey& key, std::vector<std::byte> payload);
  std::optional<std::vector<std::byte>> take_mail(int peer, const MessageKey& key);

  sys::World& world_;
  const int rank_;
  const int world_size_;
  const WireProtection wire_;
  const std::size_t max_message_bytes_;
  std::uint64_t job_ = 0;  // 0: not known yet
  Key job_key_{};
  std::unique_ptr<sys::Listener> listener_;
  std::unique_ptr<Doorkeeper> doorkeeper_;
  std::optional<Enrolments> enrolments_;
  bool is_enrolment_over_ = false;
  bool is_accepting_ = false;
  bool has_said_bye_ = false;
  std::optional<Error> starved_;  // connections cannot be accepted, and so none be waited for

  std::map<int, std::string> addresses_;  // that this rank has had a use for
  std::unique_ptr<Directory> directory_;
  ServeSurvey serve_survey_;  // empty: nobody does
  // Connections that have proved the job's key and not said yet what they are for, by the order in
  // which they came.
  std::map<std::uint64_t, Channel*> ungreeted_;
  std::uint64_t last_ungreeted_ = 0;
  std::vector<std::unique_ptr<Link>> links_;
  std::map<int, Link*> link_of_peer_;
  std::set<int> connecting_;
  std::map<int, Error> unreachable_;  // why the latest attempt to connect failed
  struct Lost {
    FailureReason reason;  // gone, or left: the link ended with a bye
    std::string why;
  };
  std::map<int, Lost> lost_;  // peers whose last link ended
  std::map<int, std::int64_t> last_message_ns_;
  std::map<GroupId, GroupListener*> listeners_;

  std::map<MailKey, std::deque<std::vector<std::byte>>> mail_;
  std::map<int, std::size_t> unclaimed_bytes_;  // in mail_, by peer
  std::map<GroupId, Failure> failures_;
  std::map<std::uint64_t, std::uint32_t> newest_epoch_;  // by communicator
  const std::shared_ptr<OpenEpochs> epochs_ = std::make_shared<OpenEpochs>();
  std::deque<GroupId> retired_;  // the latest, at most max_retired

  sys::WaitQueue changed_;
  sys::TaskScope tasks_;  // last: its tasks use everything above
};

}  // namespace unisono::comm
