// The exchanges of one communicator's members, as coroutines in any world. ControlGroup
// (bootstrap.h) is the blocking skin over it.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/blame/inquiry.h"
#include "comm/blame/kept_calls.h"
#include "comm/control/control_group.h"
#include "comm/control/members.h"
#include "comm/control/node.h"

namespace unisono::comm {

// Everybody's bytes to everybody among the ranks `members` (job ranks), of which this is number
// `me`, without a star. Invariant: before round k, k = 0, 1, ..., member r holds the entries of r,
// r+1, ..., r+2^k-1 (mod p, at most p of them). In round k it receives the first min(2^k, p-2^k)
// entries of r+2^k and sends the same to r-2^k. After ceil(log2 p) rounds every member holds all.
// Returns the entries of members me, me+1, ... (mod p).
//
// `progress` says, while and after it runs, in which round whom it waits for.
struct GatherProgress {
  std::uint32_t round = 0;
  int waits_for = -1;  // a job rank
};
sys::Task<Result<std::vector<std::vector<std::byte>>>> gather_tables(
    ControlNode& node, MessageKey key, std::span<const int> members, int me,
    std::span<const std::byte> mine, std::size_t max_entry_bytes, std::int64_t deadline_ns,
    GatherProgress& progress);

class GroupExchange : public GroupListener {
 public:
  // `me` is this process's place among the members.
  GroupExchange(std::shared_ptr<ControlNode> node, GroupId id,
                std::shared_ptr<const Members> members, int me);
  ~GroupExchange() override;
  GroupExchange(const GroupExchange&) = delete;
  GroupExchange& operator=(const GroupExchange&) = delete;
  // Takes no more of what comes. On the world's loop; afterwards it may be destroyed anywhere.
  void leave();

  const GroupId& id() const { return id_; }
  int rank() const { return me_; }
  std::span<const int> members() const { return members_->ranks(); }
  const std::shared_ptr<const Members>& shared_members() const { return members_; }
  const std::shared_ptr<ControlNode>& node() const { return node_; }

  sys::Task<Result<Gathered>> all_gather(std::span<const std::byte> mine, std::int64_t timeout_ns);
  sys::Task<Status> barrier(std::int64_t timeout_ns);
  // Ends for all when all have come, and with the error of the first member that brings one.
  sys::Task<Status> agree(Status mine, std::int64_t timeout_ns);
  // Takes what has come; the group's failure, if there is one.
  sys::Task<std::optional<Error>> look();
  // Watches a member (its job rank): what ends a wait for it, if anything does.
  std::optional<Error> watch(int peer);
  // Tells the members that there is a link to; fails every call, this one's and later ones.
  void give_up(const Error& error);

  CallState& call_state() { return call_state_; }
  // What members that ask are told of this one's collectives; null: nothing.
  void show_calls(std::shared_ptr<const KeptCalls> kept) { kept_calls_ = std::move(kept); }
  // Asks a member, now and then, which call its collective of that number was; an error that names
  // both once that is known not to be `mine`.
  std::optional<Error> compare(int member, std::uint64_t number, const CallId& mine);
  // Asks all members that links lead to, by way of each other, for their records. False: a request
  // of that number has been here.
  bool ask_for_dumps(std::uint64_t number);
  // Takes part in the group's inquiry (inquiry.h), or opens it, and takes what has come. To be
  // called again, every few milliseconds and with the same arguments, until it returns the verdict
  // or a failure that a member has told.
  sys::Task<std::optional<Error>> inquire(const Inquest& mine);
  bool on_frame(int peer, FrameKind kind, std::span<const std::byte> payload) override;

 private:
  // A member that was asked what it does.
  struct Asked {
    int peer = -1;  // its rank in the job
    bool was_sent = false;
    std::optional<CallReport> answer;
  };
  // This member's part in the inquiry.
  struct Part {
    std::int64_t begun_ns = 0;
    InquiryTimes times;
    bool has_judged = false;
    std::vector<Asked> asked;  // as Inquest::awaited
  };
  void begin(const Inquest& mine, std::int64_t now_ns);
  void ask(const Inquest& mine);
  void send_ask(int peer);
  // Makes a link to a member (its job rank) and asks it, once in a while.
  void ask_now_and_then(int peer);
  // What this member knows of one that it waits for.
  std::optional<Suspicion> judge(const Inquest& mine, std::size_t awaited) const;
  Suspicion suspicion(FailureReason reason, const Inquest& mine,
                      const Inquest::Awaited& awaited) const;
  void suspect(std::span<const Suspicion> suspicions);
  void spread_suspicions(ControlNode::When when);
  // All ranks of a large job meet in its tree, in which nobody needs more than a few links. Members
  // of others exchange tables, which leaves them the links by which news of a failure spread.
  bool has_tree() const;
  sys::Task<Result<std::vector<std::byte>>> agree_in_tree(MessageKey key,
                                                          std::vector<std::byte> mine,
                                                          std::int64_t deadline_ns,
                                                          GatherProgress& progress);
  // The group is over. Tells the others why, and returns what all of them agree on.
  //
  // After a timeout or a lost connection each member only suspects the one it waits for, which may
  // have been waiting, or have given up, itself. A member sends its table of round k before it
  // waits in round k, so whoever waits in round k waits for a member that has not got through
  // round k-1 or has not come. In the tree a rank's round is its height on the way up and greater
  // than every height on the way down, so the same holds. Hence the suspicion of the earliest
  // exchange and round is about a member that waits for nobody: it has died or not come. The
  // members tell each other their suspicions for a short while and keep the earliest
  // (ControlNode::fail).
  //
  // The member that has not come may be in a call of the group, which another holds up that nobody
  // waits for here: so it is asked before.
  sys::Task<Error> conclude(const Error& error, const GatherProgress& progress,
                            std::uint64_t sequence, std::int64_t timeout_ns);

  // Who holds up `peer`: the last of those that wait in calls for each other; itself where it waits
  // for nobody, or does not say. Job ranks.
  // `suspected` is what this member tells unless it learns more; what others know better ends this.
  sys::Task<int> find_who_holds_up(int peer, const Error& suspected, ExchangePlace place,
                                   std::int64_t settles_ns, std::int64_t end_ns);
  // The group's failure once the members do not compare it any more, if there is one.
  sys::Task<std::optional<Error>> agreed_failure();

  std::shared_ptr<ControlNode> node_;
  const GroupId id_;
  const std::shared_ptr<const Members> members_;
  const int me_;
  bool has_left_ = false;
  std::uint64_t sequence_ = 0;  // of collective exchanges
  CallState call_state_;
  Suspicions suspicions_;
  std::unique_ptr<Part> part_;
  std::map<int, CallReport> answers_;         // the latest of members that were asked, by job rank
  std::map<int, std::int64_t> ask_again_ns_;  // of members that a call waits for
  std::shared_ptr<const KeptCalls> kept_calls_;
  std::uint64_t awaited_collective_ = 0;     // about which members are asked
  std::deque<std::uint64_t> dump_requests_;  // the latest that were passed on
};

}  // namespace unisono::comm
