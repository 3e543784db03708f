#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/settings.h"
#include "base/try.h"
#include "comm/join/bootstrap.h"
#include "comm/join/pmi_rendezvous.h"
#include "sys/real_world.h"
#include "sys/user_secret.h"

namespace unisono::comm {
namespace {

constexpr std::size_t max_secret_file_bytes = 4096;

// Whoever started this process, and its variables for rank and world size.
struct Launcher {
  enum class Kind : std::uint8_t { torchrun, pmi, slurm } kind;
  LauncherVariable rank;
  LauncherVariable world_size;
};
constexpr Launcher torchrun{Launcher::Kind::torchrun, LauncherVariable::rank,
                            LauncherVariable::world_size};
constexpr Launcher pmi{Launcher::Kind::pmi, LauncherVariable::pmi_rank, LauncherVariable::pmi_size};
constexpr Launcher slurm{Launcher::Kind::slurm, LauncherVariable::slurm_procid,
                         LauncherVariable::slurm_step_num_tasks};

bool are_set(std::initializer_list<LauncherVariable> variables) {
  return std::ranges::all_of(variables, [](auto one) { return launcher_text(one).has_value(); });
}

// torchrun may run inside of a step of Slurm's, and so may Hydra, whose processes then have the
// variables of its own daemon's step. Open MPI's have them, too, and nothing else that we can use.
// In a batch script there is a job, but no step.
Launcher launcher_of_this_process() {
  if (are_set({torchrun.rank, torchrun.world_size})) return torchrun;
  if (has_pmi()) return pmi;
  if (are_set({slurm.rank, slurm.world_size, LauncherVariable::slurm_job_id,
               LauncherVariable::slurm_step_id}) &&
      !launcher_text(LauncherVariable::ompi_comm_world_rank))
    return slurm;
  return torchrun;  // its variables are the ones to name where some are missing
}

// A list for a message.
std::string shortened(std::string list) {
  constexpr std::size_t most = 120;
  if (list.size() <= most) return list;
  return list.substr(0, list.rfind(',', most)) + ", ...";
}

// Nothing says that there are other ranks: no argument, no setting and no launcher.
bool is_alone(const Settings& settings, const BootstrapOptions& asked) {
  return asked.rank < 0 && asked.world_size < 1 && asked.rendezvous.empty() &&
         settings.integer(Setting::rank) < 0 && settings.integer(Setting::world_size) < 0 &&
         settings.text(Setting::rendezvous).empty() && launcher_traces().empty();
}

Result<int> narrow(std::int64_t value, std::string_view variable) {
  if (value < 0 || value > std::numeric_limits<int>::max())
    return misuse(variable, " is ", value, "; it must be at least 0 and fit 31 bits");
  return static_cast<int>(value);
}

// The setting when it is set, else the launcher's variable.
Result<int> integer_from(const Settings& settings, Setting setting, LauncherVariable launchers,
                         std::string_view what) {
  const std::string_view variable = setting_rows()[static_cast<std::size_t>(setting)].variable;
  if (settings.is_set(setting)) return narrow(settings.integer(setting), variable);
  UNISONO_ASSIGN(const auto value, launcher_integer(launchers));
  if (value) return narrow(*value, name(launchers));
  std::string traces = join(launcher_traces());
  if (!traces.empty()) traces = str(" (a launcher has set ", shortened(traces), ")");
  return misuse("no ", what, " is known", traces, ": set ", variable,
                ", or start the ranks with `unisono run`, torchrun (which sets ", name(launchers),
                "), srun or mpiexec",
                launcher_text(LauncherVariable::pmi_fd)
                    ? "; PMI_FD is set, but its descriptor is not a socket in this process: a "
                      "program between the launcher and this one closed it"
                    : "");
}

Result<std::string> rendezvous_from_torchrun() {
  const auto host = launcher_text(LauncherVariable::master_addr);
  UNISONO_ASSIGN(const auto port, launcher_integer(LauncherVariable::master_port));
  if (!host || !port)
    return misuse(
        "no rendezvous is known: set UNISONO_RENDEZVOUS to tcp://host:port or "
        "file:///path, or MASTER_ADDR and MASTER_PORT as torchrun does");
  if (*port < 1 || *port >= 65535)
    return misuse("MASTER_PORT is ", *port,
                  "; the rendezvous uses the port after it, which must "
                  "be 2 to 65535");
  return "tcp://" + sys::Address{*host, static_cast<int>(*port) + 1}.text();
}

// A part of a file's name.
Result<std::string> word_of(LauncherVariable variable, std::string_view otherwise) {
  constexpr std::size_t most = 64;
  const std::string text = launcher_text(variable).value_or(std::string(otherwise));
  const auto is_plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  if (text.size() > most || !std::ranges::all_of(text, is_plain))
    return misuse(name(variable), " is '", text, "'; it must be at most ", most,
                  " letters, digits and underscores, as Slurm sets it");
  return text;
}

Result<std::string> rendezvous_from_slurm() {
  const std::string home = launcher_text(LauncherVariable::home).value_or("");
  if (!home.starts_with('/'))
    return misuse("HOME is '", home,
                  "'; the ranks of a Slurm step find each other through a folder in it, so it must "
                  "be an absolute path that all nodes share. Otherwise set UNISONO_RENDEZVOUS");
  const std::string folder = home + "/.unisono";
  if (const Status made = sys::make_private_directory(folder); !made.ok())
    return environment_error(made.error().message,
                             ", the folder through which the ranks of a Slurm step find each "
                             "other; fix it, or set UNISONO_RENDEZVOUS");
  UNISONO_ASSIGN(const std::string cluster, word_of(LauncherVariable::slurm_cluster_name, "slurm"));
  UNISONO_ASSIGN(const std::string job, word_of(LauncherVariable::slurm_job_id, ""));
  UNISONO_ASSIGN(const std::string step, word_of(LauncherVariable::slurm_step_id, ""));
  UNISONO_ASSIGN(const std::string restart, word_of(LauncherVariable::slurm_restart_count, "0"));
  // Relaxed: it numbers the jobs of this process and orders nothing else.
  static std::atomic<int> jobs = 0;
  const int number = jobs.fetch_add(1, std::memory_order_relaxed);
  return str("file://", folder, "/", cluster, "-", job, "-", step, "-", restart, "-", number);
}

Result<std::string> rendezvous_from(Launcher::Kind kind) {
  switch (kind) {
    case Launcher::Kind::torchrun:
      return rendezvous_from_torchrun();
    case Launcher::Kind::pmi:
      return std::string(pmi_rendezvous);
    case Launcher::Kind::slurm:
      return rendezvous_from_slurm();
  }
  return bug("the launcher has no kind");
}

Result<sys::Protection> protection_from_settings(const Settings& settings) {
  const std::string& text = settings.text(Setting::wire);
  if (text.empty()) return sys::Protection::authenticate;
  for (const auto one :
       {sys::Protection::none, sys::Protection::authenticate, sys::Protection::encrypt})
    if (text == sys::name(one)) return one;
  return misuse("UNISONO_WIRE is '", text, "'; write none, auth or encrypt, or leave it empty");
}

}  // namespace

Result<std::string> secret_from_settings(const Settings& settings) {
  const std::string& path = settings.text(Setting::secret_file);
  if (path.empty()) return settings.text(Setting::secret);
  UNISONO_ASSIGN(auto world, sys::RealWorld::create());
  UNISONO_ASSIGN(std::string secret, world->read_file(path, max_secret_file_bytes, true));
  while (secret.ends_with('\n')) secret.pop_back();
  if (secret.empty()) return environment_error(path, ", which UNISONO_SECRET_FILE names, is empty");
  return secret;
}

Status fill_from_settings(const Settings& settings, BootstrapOptions& options) {
  if (options.interface.empty()) options.interface = settings.text(Setting::interface);
  if (options.timeout_ns <= 0)
    options.timeout_ns = settings.duration_ns(Setting::bootstrap_timeout);
  UNISONO_ASSIGN(options.protection, protection_from_settings(settings));
  options.insecure = settings.boolean(Setting::insecure);
  options.secret_was_taken = settings.secret_was_taken();
  return {};
}

Result<BootstrapOptions> bootstrap_options_from_settings(const Settings& settings,
                                                         BootstrapOptions asked) {
  UNISONO_TRY(settings.check());
  BootstrapOptions out = std::move(asked);
  const Launcher launcher = launcher_of_this_process();
  if (is_alone(settings, out)) {
    out.rank = 0;
    out.world_size = 1;
  }
  if (out.rank < 0) {
    UNISONO_ASSIGN(out.rank, integer_from(settings, Setting::rank, launcher.rank, "rank"));
  }
  if (out.world_size < 1) {
    UNISONO_ASSIGN(out.world_size,
                   integer_from(settings, Setting::world_size, launcher.world_size, "world size"));
  }
  if (out.secret.empty() && out.world_size > 1) {
    UNISONO_ASSIGN(out.secret, secret_from_settings(settings));
  }
  if (out.rendezvous.empty()) out.rendezvous = settings.text(Setting::rendezvous);
  if (out.rendezvous.empty() && out.world_size > 1) {
    UNISONO_ASSIGN(out.rendezvous, rendezvous_from(launcher.kind));
  }
  UNISONO_TRY(fill_from_settings(settings, out));
  return out;
}

}  // namespace unisono::comm
