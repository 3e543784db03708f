// How the ranks of a job find each other, and how members of a communicator exchange small control
// messages afterwards: the blocking interface over coroutines (node.h, group.h).
//
// Finding each other, p ranks. They form a tree (tree.h), whose root is rank 0; where it listens is
// all that anybody knows at first.
//   1. Each rank r > 0 visits the rendezvous, both sides prove the secret that ranks were started
//      with (see handshake.h; nothing else is read before), and it is sent on to the child that is
//      above it; so it comes down the tree. With tcp:// and many ranks, those of a host gather
//      first (host_rendezvous.h), and one of them visits rank 0. With a file for a rendezvous,
//      ranks with many below them write files of their own, where those begin.
//   2. At its parent r enrols: it says {r, p, its own address}. The parent answers with the job's
//      key, 32 random bytes that rank 0 made, and keeps the connection. From then on ranks prove
//      the job's key to each other; the secret only admits to the job. The job's identity, a
//      number, proves nothing.
//   3. When all below a rank have come, it sends a census of them up (roster.h): who is on which
//      host and node, in runs. Rank 0 sends the roster down, which lets all go. So either every
//      living rank succeeds, or every living rank gets an error that names the same culprit: the
//      missing ranks, the dead rank, the rank whose connection broke. Only a rank that dies while
//      it passes the roster on is named by those below it alone, and by the others' next call.
//   4. Other addresses are looked up through the tree when they are needed (directory.h); jobs of
//      few ranks learn all of them with the roster.
// A rank holds a connection to its parent and to each of its children, at most 20.
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
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fingerprint.h"
#include "base/key.h"
#include "base/open_epochs.h"
#include "base/settings.h"
#include "comm/bootstrap/roster.h"
#include "comm/bootstrap/tree.h"
#include "sys/seal.h"
#include "sys/world.h"

namespace unisono::comm {

// The most bytes that a member may contribute to an exchange.
inline constexpr std::size_t max_exchange_bytes = 65536;

struct BootstrapOptions {
  int rank = 0;
  int world_size = 1;
  // "tcp://host:port": rank 0 listens there. "file:///path": rank 0 listens on a port of its own
  // choice and writes its address into this file, which all ranks can read. May be empty when
  // world_size is 1. Invitations ("meet://...") and pmi_rendezvous are replaced before bootstrap().
  std::string rendezvous;
  // What admits to the job: the same on all its ranks, and known to nobody else. When empty: with
  // file://, rank 0 makes one and shares it through the file <path>.secret (mode 0600); with tcp://
  // to a loopback address written as such (127.x.x.x, ::1, localhost), a key from a file of this
  // user's on this host; with any other host it is an error, unless `insecure` says that nobody
  // else reaches the port.
  std::string secret;
  // The address or the name of the interface that this rank's listener binds to; empty takes the
  // one that routes to the rendezvous.
  std::string interface;
  std::int64_t timeout_ns = 120'000'000'000;
  // How what ranks tell each other is protected once they know each other (UNISONO_WIRE): the same
  // on all ranks. Inside a host, where only its administrator could read or change it, nothing is,
  // unless protects_loopback.
  sys::Protection protection = sys::Protection::authenticate;
  bool protects_loopback = false;
  // What else a rank must have to be admitted, the same on all ranks; empty: nothing.
  std::string shared_key;
  bool insecure = false;  // UNISONO_INSECURE
  // The process that started this one has taken its secret from the environment.
  bool secret_was_taken = false;
  // The shape of the tree, and up to how many ranks all learn all addresses at once: the same on
  // all ranks.
  int fan_out = default_fan_out;
  int most_addresses = 256;
  // Rank 0 itself has told the rendezvous, so that it listens there already: a rank that cannot
  // connect for a minute fails, whatever the timeout.
  bool is_listening = false;
};

// The secret that the settings name: UNISONO_SECRET_FILE's, then UNISONO_SECRET, which a launcher
// may have made; empty if neither.
Result<std::string> secret_from_settings(const Settings& settings);
// Fills what does not depend on the rank: the interface where it is empty, the timeout where it is
// 0, the protection, and what is allowed without a secret.
Status fill_from_settings(const Settings& settings, BootstrapOptions& options);

// Completes what was asked for: a rank or world size of -1, an empty text and a timeout of 0 are
// filled in. First from the settings: UNISONO_RANK, _WORLD_SIZE, _RENDEZVOUS, _SECRET_FILE,
// _SECRET, _INTERFACE, _BOOTSTRAP_TIMEOUT, _WIRE. Then rank, world size and rendezvous from the
// launcher of this process, the first of these whose variables are there:
//   torchrun  RANK, WORLD_SIZE, and MASTER_ADDR with the port after MASTER_PORT (MASTER_PORT itself
//             belongs to torchrun's own store).
//   PMI       PMI_FD, PMI_RANK, PMI_SIZE; the rendezvous is told through PMI (pmi_rendezvous.h).
//   Slurm     SLURM_PROCID, SLURM_STEP_NUM_TASKS; the rendezvous is a file in ~/.unisono, a folder
//             of mode 0700, named by the job, its step, its restarts, and how often this process
//             has come here.
// A missing or unreadable value is a misuse error that names the variable.
Result<BootstrapOptions> bootstrap_options_from_settings(
    const Settings& settings,
    BootstrapOptions asked = {.rank = -1, .world_size = -1, .timeout_ns = 0});

// What all members contributed, one byte string each.
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

class BootstrapRuntime;
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
  // What members that ask so are told of this one.
  void show_calls(std::shared_ptr<const KeptCalls> kept);
  // For the same: whom to blame for a call that cannot end, as GroupExchange::inquire says.
  CallState& call_state();
  // Asks the members that links lead to, by way of each other, for their records
  // (CallState::dumps_asked), and does not wait. Any thread. Of members that ask for one reason,
  // which is not 0, each is asked once.
  void ask_for_dumps(std::uint64_t reason = 0);
  std::optional<Error> inquire(const Inquest& mine);

  // For bootstrap().
  static std::unique_ptr<ControlGroup> make(std::shared_ptr<BootstrapRuntime> runtime,
                                            std::shared_ptr<GroupExchange> exchange);

 private:
  ControlGroup(std::shared_ptr<BootstrapRuntime> runtime, std::shared_ptr<GroupExchange> exchange);
  // With the rank at fault, which the control plane knows by its number in the job, as a member.
  std::optional<Error> of_member(std::optional<Error> error) const;

  std::shared_ptr<BootstrapRuntime> runtime_;
  std::shared_ptr<GroupExchange> exchange_;
};

// The identity of the communicator that members of `parent` make with their `sequence`-th split
// and the same color: a hash, the same on every member, different for different arguments.
std::uint64_t child_communicator(std::uint64_t parent, std::uint64_t sequence, std::int64_t color);

// What ranks publish of themselves for those that look them up. Any thread.
class PublishedRecords {
 public:
  PublishedRecords() = default;
  explicit PublishedRecords(std::weak_ptr<BootstrapRuntime> runtime);
  // At most max_record_bytes. Not before it is published is it looked up: agree in between.
  Status publish(std::vector<std::byte> record);
  // An error once all groups of this process are gone.
  Result<std::vector<std::byte>> look_up(int rank, std::int64_t timeout_ns);

 private:
  std::weak_ptr<BootstrapRuntime> runtime_;
};

// The job, once all ranks have found each other.
struct BootstrapResult {
  Key key{};  // only this job's ranks have it
  Roster roster;
  PublishedRecords records;
  // This host's address: the one that the rendezvous was reached by, or is at. The other ranks
  // reach this one there. Empty in a job of one rank.
  std::string host;
  std::unique_ptr<ControlGroup> world;  // all ranks; communicator = the job's random identity
};

// Blocking. Errors name what is wrong: the missing ranks, the duplicate rank, the differing world
// size, what ranks do not agree on, the refused secret, the port in use.
Result<BootstrapResult> bootstrap(const BootstrapOptions& options, const SelfDescription& self);
// In another world than the real one.
Result<BootstrapResult> bootstrap(std::shared_ptr<sys::World> world,
                                  const BootstrapOptions& options, const SelfDescription& self);

// For launchers that can broadcast a string but cannot choose a free port (MPI, tests): rank 0
// makes the listener first, everybody learns rendezvous(), then all call bootstrap, rank 0 with
// the listener.
class RendezvousListener {
 public:
  // Listens on `interface` (an address or a name; empty: sys::own_address) on a port that the
  // kernel chooses, or on `port`.
  static Result<RendezvousListener> open(std::string_view interface, int port = 0);
  RendezvousListener(RendezvousListener&&) noexcept;
  RendezvousListener& operator=(RendezvousListener&&) noexcept;
  ~RendezvousListener();

  const std::string& rendezvous() const { return rendezvous_; }  // "tcp://10.0.0.1:43121"

 private:
  friend Result<BootstrapResult> bootstrap(const BootstrapOptions& options,
                                           const SelfDescription& self,
                                           RendezvousListener listener);
  RendezvousListener(int descriptor, std::string rendezvous);
  int descriptor_ = -1;
  std::string rendezvous_;
};

Result<BootstrapResult> bootstrap(const BootstrapOptions& options, const SelfDescription& self,
                                  RendezvousListener listener);

// A fresh secret from the kernel's random numbers, 64 hexadecimal digits; for launchers.
Result<std::string> make_secret();

}  // namespace unisono::comm
