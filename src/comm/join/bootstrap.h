// How the ranks of a job find each other: the blocking interface over coroutines (join.h). Members
// of a communicator exchange small control messages afterwards (control_group.h).
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
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/key.h"
#include "base/settings.h"
#include "comm/control/control_group.h"
#include "comm/control/tree.h"
#include "comm/join/roster.h"
#include "sys/seal.h"
#include "sys/world.h"

namespace unisono::comm {

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
  // Why this rank cannot join. It comes to tell the others, whose bootstrap ends with an error that
  // names it; its own ends with this one.
  std::optional<Error> failure = std::nullopt;
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
