// The one table of settings: every UNISONO_* variable, its type, default and meaning.
// The reference page is generated from it; nothing else reads the environment.
#pragma once

#include <unisono/result.h>
#include <unisono/settings.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace unisono {

enum class Setting : std::uint8_t {
  log,
  rank,
  world_size,
  rendezvous,
  secret,
  secret_file,
  insecure,
  wire,
  node,
  levels,
  interface,
  timeout,
  bootstrap_timeout,
  algorithm,
  protocol,
  channels,
  selection_file,
  simple_slots,
  simple_slot_bytes,
  ll_slot_bytes,
  ll128_slot_bytes,
  gpu_slots,
  gpu_slot_bytes,
  gpu_peer_access,
  staged,
  gpu_ring_links,
  gpu_zero_copy,
  gpu_zero_copy_min_bytes,
  gpu_ll128,
  gpu_policy,
  gpu_max_sms,
  gpu_compute_overlap,
  gpu_stamps,
  gpu_copy_slots,
  gpu_copy_slot_bytes,
  zero_copy,
  zero_copy_min_bytes,
  socket_streams,
  transport,
  rails,
  delay,
  flat,
  record_slots,
  dump_directory,
  dump_signal,
  live,
  check_calls,
  check_passes,
  spin,
  simd,
};

struct SettingRow {
  Setting setting;
  std::string_view variable;  // "UNISONO_LOG"
  SettingType type;
  std::string_view default_text;
  std::string_view meaning;  // one or two full sentences
};

std::span<const SettingRow> setting_rows();

// A value for every setting. It is passed to what is made with it, and does not change afterwards.
class Settings {
 public:
  Settings();  // the defaults

  const std::string& text(Setting setting) const;
  std::int64_t integer(Setting setting) const;
  std::uint64_t bytes(Setting setting) const;
  std::int64_t duration_ns(Setting setting) const;
  bool boolean(Setting setting) const;
  bool is_set(Setting setting) const;

  // Sets a value as if the variable had it. Misuse, and nothing set, if it cannot be.
  Status set(Setting setting, std::string_view value);
  Status set(std::string_view variable, std::string_view value);
  // The first value that could not be read, naming the variable and what would be right.
  Status check() const;
  // These with some values set, by variable.
  Result<Settings> with(const SettingValues& values) const;
  // The process that started this one had UNISONO_SECRET in its environment, and has overwritten it
  // there (environment_settings() does), so that this one inherits nothing of it.
  bool secret_was_taken() const { return secret_was_taken_; }

  // A variable that cannot be read leaves the default, and check() reports it.
  static Settings from_environment();

 private:
  struct Value {
    std::string text;
    std::int64_t number = 0;
    bool is_set = false;
  };
  std::vector<Value> values_;
  std::vector<std::string> complaints_;
  bool secret_was_taken_ = false;
};

// How the message about a variable that is no setting ends: "; did you mean UNISONO_TIMEOUT?", or
// nothing where no setting has a near name.
std::string near_settings(std::string_view variable);
// A sentence for each variable of the environment that begins with UNISONO_ and that nothing reads.
std::vector<std::string> unknown_variables();

// What those who start processes set for each one; read when the setting of the same meaning is
// unset. See settings.cc for whose variables are taken when several have set theirs.
enum class LauncherVariable : std::uint8_t {
  // torchrun, and those that imitate it.
  rank,
  world_size,
  master_addr,
  master_port,
  local_world_size,
  // PMI: mpiexec of MPICH and its derivatives, srun --mpi=pmi2.
  pmi_fd,
  pmi_rank,
  pmi_size,
  // Open MPI's mpirun, whose processes may have the Slurm variables of its daemon.
  ompi_comm_world_rank,
  // srun.
  slurm_procid,
  slurm_step_num_tasks,
  slurm_cluster_name,
  slurm_job_id,
  slurm_step_id,
  slurm_restart_count,
  slurm_topology_addr,
  slurm_topology_addr_pattern,
  home,
};
std::string_view name(LauncherVariable variable);  // "MASTER_ADDR"
// Nothing when it is unset or empty. A number that cannot be read is a misuse error.
std::optional<std::string> launcher_text(LauncherVariable variable);
Result<std::optional<std::int64_t>> launcher_integer(LauncherVariable variable);
// The variables of the environment that only a launcher sets: RANK, WORLD_SIZE and MASTER_*, and
// those of Slurm, PMI, PMIx and Open MPI. A process that has none was started alone.
std::vector<std::string> launcher_traces();

// What this process's environment had when it was first asked for; it never changes. For those who
// make something from it (Communicator::init, the bindings) and for what a process has one of (the
// level of the log, the instruction set). Once it is read, UNISONO_SECRET is overwritten where the
// environment has it, so that neither this process's children nor /proc/<pid>/environ have it.
const Settings& environment_settings();

}  // namespace unisono
