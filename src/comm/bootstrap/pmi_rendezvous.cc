#include "comm/bootstrap/pmi_rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/str.h"
#include "base/try.h"
#include "base/units.h"
#include "comm/bootstrap/join.h"
#include "comm/bootstrap/pmi.h"
#include "sys/exit.h"
#include "sys/mpi.h"
#include "sys/user_secret.h"

namespace unisono::comm {
namespace {

using Deadline = PmiClient::Deadline;

constexpr std::chrono::seconds finalize_timeout(2);
// What rank 0 puts: "<rendezvous>,<secret>"; a secret that it was given is not put.
constexpr std::string_view own_secret = "-";
constexpr std::string_view failed = "failed";

Result<int> number_of(LauncherVariable variable) {
  UNISONO_ASSIGN(const auto value, launcher_integer(variable));
  if (!value || *value < 0 || *value > std::numeric_limits<int>::max())
    return misuse(name(variable), " is not set to a number of 0 or more, though PMI_FD is set");
  return static_cast<int>(*value);
}

// This process's conversation with its launcher.
struct Conversation {
  std::mutex mutex;
  std::optional<PmiClient> client;
  std::unique_ptr<sys::AtExit> finalize_at_exit;
  pid_t process = 0;
  int jobs = 0;
};

Conversation& conversation() {
  static auto* const only = new Conversation;  // used while the process exits
  return *only;
}

Status open(Conversation& with, Deadline deadline) {
  if (with.client) {
    if (with.process == getpid()) return {};
    return misuse(
        "the connection to the launcher (PMI_FD) belongs to process ", with.process,
        ", from which this one was forked; set UNISONO_RENDEZVOUS for the children's job");
  }
  UNISONO_ASSIGN(const int descriptor, number_of(LauncherVariable::pmi_fd));
  UNISONO_ASSIGN(with.client, PmiClient::open(descriptor, deadline));
  with.process = getpid();
  with.finalize_at_exit = std::make_unique<sys::AtExit>([&with] {
    // Busy: another thread waits for the launcher while this process exits.
    const std::unique_lock lock(with.mutex, std::try_to_lock);
    if (!lock) return;
    const Status ended = with.client->finalize(std::chrono::steady_clock::now() + finalize_timeout);
    if (!ended.ok()) log(LogLevel::debug, ended.error().message);
  });
  return {};
}

Result<std::optional<RendezvousListener>> tell(PmiClient& client, const std::string& key,
                                               BootstrapOptions& options, Deadline deadline) {
  auto listener = RendezvousListener::open(options.interface);
  std::string told(failed);
  if (listener.ok()) {
    std::string secret(own_secret);
    if (options.secret.empty()) {
      UNISONO_ASSIGN(secret, sys::random_secret());
      options.secret = secret;
    }
    options.rendezvous = listener->rendezvous();
    told = str(options.rendezvous, ",", secret);
  }
  UNISONO_TRY(client.put(key, told, deadline));
  UNISONO_TRY(client.barrier(deadline));
  if (!listener.ok()) return listener.take_error();
  return std::optional(std::move(*listener));
}

Status hear(PmiClient& client, const std::string& key, BootstrapOptions& options,
            Deadline deadline) {
  UNISONO_TRY(client.barrier(deadline));
  UNISONO_ASSIGN(const std::string told, client.get(key, deadline));
  if (told == failed)
    return peer_error(0, "rank 0 could not listen for the other ranks; see the error of rank 0");
  const std::size_t comma = std::min(told.rfind(','), told.size());
  const std::string secret = told.substr(std::min(comma + 1, told.size()));
  options.rendezvous = told.substr(0, comma);
  options.is_listening = true;
  const auto place = parse_rendezvous(options.rendezvous);
  if (!place.ok() || place->is_file || secret.empty())
    return peer_error(0,
                      "the rendezvous that rank 0 published through PMI cannot be read; is it "
                      "another version of unisono?");
  if (!options.secret.empty()) return {};
  if (secret == own_secret)
    return environment_error(
        "rank 0 has a secret of its own (UNISONO_SECRET or UNISONO_SECRET_FILE) and this rank has "
        "none; set the same on every rank, or on none");
  options.secret = secret;
  return {};
}

}  // namespace

bool has_pmi() {
  for (const auto variable :
       {LauncherVariable::pmi_fd, LauncherVariable::pmi_rank, LauncherVariable::pmi_size})
    if (!launcher_text(variable)) return false;
  const auto descriptor = number_of(LauncherVariable::pmi_fd);
  return descriptor.ok() && PmiClient::is_socket(*descriptor);
}

Result<std::optional<RendezvousListener>> rendezvous_through_pmi(BootstrapOptions& options) {
  UNISONO_ASSIGN(const int processes, number_of(LauncherVariable::pmi_size));
  if (processes != options.world_size)
    return misuse("the job has ", options.world_size, " ranks, but the launcher started ",
                  processes,
                  " processes (PMI_SIZE), and all of them must join; use that number of ranks, or "
                  "set UNISONO_RENDEZVOUS");
  if (sys::mpi_is_initialized())
    return misuse(
        "MPI is initialised in this process, so the launcher's PMI connection is MPI's: let rank 0 "
        "call unisono::invite() and broadcast the invitation by MPI (in Python, pass mpi_comm)");
  Conversation& shared = conversation();
  const std::lock_guard lock(shared.mutex);
  const Deadline deadline =
      std::chrono::steady_clock::now() + std::chrono::nanoseconds(options.timeout_ns);
  UNISONO_TRY(open(shared, deadline));
  const std::string key = str("unisono-", shared.jobs++);
  std::optional<RendezvousListener> listener;
  Status met;
  if (options.rank == 0) {
    auto told = tell(*shared.client, key, options, deadline);
    if (told.ok())
      listener = std::move(*told);
    else
      met = told.take_error();
  } else {
    met = hear(*shared.client, key, options, deadline);
  }
  if (met.ok()) return listener;
  if (!met.error().timed_out) return met.take_error();
  return timeout_error(-1, "not all of the ", processes,
                       " processes that the launcher started joined within ",
                       format_duration_ns(options.timeout_ns), " (rank ", options.rank,
                       " waited for them through PMI)");
}

}  // namespace unisono::comm
