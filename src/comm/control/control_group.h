// How members of a communicator exchange small control messages: the blocking interface over
// coroutines (node.h, group.h).
//
// Threads. In a job of few ranks none is made. Whoever is inside a call runs the process's one
// event loop and so serves everybody else's traffic too; of several threads inside calls one runs
// the loop for all. A rank outside of every call does not answer, which is no loss, because every
// exchange is collective. In a job in which addresses are looked up one thread for each rank runs
// the loop when nobody else does, because the ranks that a question passes may be in no call.
#pragma once

#include <unisono/result.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/fingerprint.h"
#include "base/open_epochs.h"
#include "sys/world.h"

namespace unisono::comm {

// The most bytes that a member may contribute to an exchange.
inline constexpr std::size_t max_exchange_bytes = 65536;

// Holds one byte string of each member.
class Gathered {
 public:
  Gathered() = default;
  Gathered(std::vector<std::byte> bytes, std::vector<std::size_t> ends)
      : bytes_(std::move(bytes)), ends_(std::move(ends)) {}

  int size() const { return static_cast<int>(ends_.size()); }
  std::span<const std::byte> operator[](int member) const {
    const auto index = static_cast<std::size_t>(member);
    const std::size_t begin = index == 0 ? 0 : ends_[index - 1];
    return std::span(bytes_).subspan(begin, ends_[index] - begin);
  }

 private:
  std::vector<std::byte> bytes_;
  std::vector<std::size_t> ends_;  // where each member's string ends in bytes_
};

class ControlRuntime;
class ControlNode;
class GroupExchange;
class Members;
class KeptCalls;
struct CallState;
struct Inquest;

// The members of one communicator, as the control plane sees them. A group of a communicator that
// is used concurrently with others may be used concurrently too; within one group every member
// makes the same collective calls in the same order, one at a time.
//
// Errors. Every call ends at its timeout with an error that names the member it waited for. A
// member whose process ended is named at once. A call that fails tells the other members, so that
// they fail too and name the same culprit. After a failed collective call the group is of no
// further use: every later call returns the first error.
class ControlGroup {
 public:
  ~ControlGroup();
  ControlGroup(const ControlGroup&) = delete;
  ControlGroup& operator=(const ControlGroup&) = delete;

  int rank() const;  // this process's place among the members
  int size() const;
  std::uint64_t communicator() const;
  std::uint32_t epoch() const;
  const std::shared_ptr<sys::World>& world() const;
  // For who looks into the job from outside of its calls (survey.h).
  const std::shared_ptr<ControlNode>& node() const;
  // The members' ranks in the job (of bootstrap), in member order.
  std::span<const int> world_ranks() const;
  const std::shared_ptr<const Members>& members() const;

  // Collective. Everybody's bytes (at most max_exchange_bytes each) to everybody, in ceil(log2 p)
  // rounds.
  Result<Gathered> all_gather(std::span<const std::byte> mine, std::int64_t timeout_ns);
  // Collective. Returns when all members have entered.
  Status barrier(std::int64_t timeout_ns);
  // Collective. The same, with the error of the first member that brings one.
  Status agree(Status mine, std::int64_t timeout_ns);

  // Not collective by itself; every member of the new group makes it with the same identity and
  // the same members (ranks in this group, in the new order). Groups may overlap; their identities
  // must differ (see child_communicator). Its epoch is the next after this group's. Once a process
  // has left all groups of an epoch and of those before, what comes for them is refused.
  Result<std::unique_ptr<ControlGroup>> subgroup(std::uint64_t communicator,
                                                 std::span<const int> members);
  // Those of all groups of this process's job.
  std::shared_ptr<const OpenEpochs> open_epochs() const;

  // Gives up from any thread: calls in progress and later ones return `error`, and the members that
  // this rank has a link to are told. Of several errors an abort counts, then the earliest failure.
  // `error.peer` is a member, here and below, or -1.
  void give_up(const Error& error);

  // For who waits outside of the calls above; both return at once. look() takes what has come for
  // this process, and returns this group's failure, if a member has told one. watch() says what is
  // wrong with a member that is waited for: that its process has ended, as far as is known. It
  // makes a link to it if there is none; call it again, with look() between.
  std::optional<Error> look();
  std::optional<Error> watch(int member);

  // For the same: asks a member which call its collective of that number was; an error that names
  // both, and no member, once that is known not to be `mine`. Call it again, with look() between.
  std::optional<Error> compare(int member, std::uint64_t number, const CallId& mine);
  // Members that ask so are told these calls of this one.
  void show_calls(std::shared_ptr<const KeptCalls> kept);
  // For the same: whom to blame for a call that cannot end, as GroupExchange::inquire says.
  CallState& call_state();
  // Asks the members that links lead to, by way of each other, for their records
  // (CallState::dumps_asked), and does not wait. Any thread. Of members that ask for one reason,
  // which is not 0, each is asked once.
  void ask_for_dumps(std::uint64_t reason = 0);
  std::optional<Error> inquire(const Inquest& mine);

  // For bootstrap().
  static std::unique_ptr<ControlGroup> make(std::shared_ptr<ControlRuntime> runtime,
                                            std::shared_ptr<GroupExchange> exchange);

 private:
  ControlGroup(std::shared_ptr<ControlRuntime> runtime, std::shared_ptr<GroupExchange> exchange);
  // With the rank at fault, which the control plane knows by its number in the job, as a member.
  std::optional<Error> of_member(std::optional<Error> error) const;

  std::shared_ptr<ControlRuntime> runtime_;
  std::shared_ptr<GroupExchange> exchange_;
};

// The identity of the communicator that members of `parent` make with their `sequence`-th split
// and the same color: a hash, the same on every member, different for different arguments.
std::uint64_t child_communicator(std::uint64_t parent, std::uint64_t sequence, std::int64_t color);

// Ranks publish a record of themselves for those that look them up. Any thread.
class PublishedRecords {
 public:
  PublishedRecords() = default;
  explicit PublishedRecords(std::weak_ptr<ControlRuntime> runtime);
  // At most max_record_bytes. Not before it is published is it looked up: agree in between.
  Status publish(std::vector<std::byte> record);
  // An error once all groups of this process are gone.
  Result<std::vector<std::byte>> look_up(int rank, std::int64_t timeout_ns);

 private:
  std::weak_ptr<ControlRuntime> runtime_;
};

}  // namespace unisono::comm
