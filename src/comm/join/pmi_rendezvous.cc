#include "comm/join/pmi_rendezvous.h"

#include <unistd.h>

#include <limits>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/str.h"
#include "base/try.h"
#include "base/units.h"
#include "comm/join/meet.h"
#include "comm/join/pmi.h"
#include "sys/exit.h"
#include "sys/mpi.h"

namespace unisono::comm {
namespace {

using Deadline = PmiClient::Deadline;

constexpr std::chrono::seconds finalize_timeout(2);

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

// All can get a value once all have come to the barrier after it was put.
class PmiStore final : public Store {
 public:
  PmiStore(PmiClient& client, Deadline deadline) : client_(client), deadline_(deadline) {}

  std::string_view name() const override { return "PMI"; }
  Status set(const std::string& key, const std::string& value) override {
    UNISONO_TRY(client_.put(key, value, deadline_));
    return client_.barrier(deadline_);
  }
  Status wait(const std::string&) override { return client_.barrier(deadline_); }
  Result<std::string> get(const std::string& key) override { return client_.get(key, deadline_); }

 private:
  PmiClient& client_;
  const Deadline deadline_;
};

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
  PmiStore store(*shared.client, deadline);
  auto met = meet(store, {.key = str("unisono-", shared.jobs++),
                          .rank = options.rank,
                          .interface = options.interface,
                          .has_secret = !options.secret.empty(),
                          .failure = options.failure});
  if (met.ok()) {
    options.rendezvous = std::move(met->rendezvous);
    options.is_listening = true;
    if (options.secret.empty()) options.secret = std::move(met->secret);
    return std::move(met->listener);
  }
  if (!met.error().timed_out) return met.take_error();
  return timeout_error(-1, "not all of the ", processes,
                       " processes that the launcher started joined within ",
                       format_duration_ns(options.timeout_ns), " (rank ", options.rank,
                       " waited for them through PMI)");
}

}  // namespace unisono::comm
