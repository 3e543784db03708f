// What the environment has besides settings: launchers' variables, and names that nothing reads.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "base/error.h"
#include "base/settings.h"

namespace unisono {
namespace {

constexpr std::string_view own_prefix = "UNISONO_";
// Read by the installer, by the tests and by libraries above; without the prefix.
constexpr std::array<std::string_view, 5> read_elsewhere{
    "NVCC_WHEELS", "TORCH_PYTHON", "NCCL_HEADERS", "NCCL_HOST_MEMORY", "UPDATE_GOLDEN"};
constexpr std::array<std::string_view, 6> launcher_names{
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
constexpr std::array<std::string_view, 3> launcher_prefixes{"SLURM_", "PMI", "OMPI_"};

// The names of the environment's variables that are not empty.
std::vector<std::string> variables() {
  std::vector<std::string> out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string_view::npos && equals + 1 < text.size())
      out.emplace_back(text.substr(0, equals));
  }
  std::ranges::sort(out);
  return out;
}

// What all names begin with would make all of them near.
std::string_view distinctive(std::string_view name) {
  return name.substr(name.starts_with(own_prefix) ? own_prefix.size() : 0);
}

}  // namespace

std::string near_settings(std::string_view variable) {
  std::vector<std::string> known;
  for (const SettingRow& row : setting_rows())
    if (row.variable.starts_with(own_prefix)) known.emplace_back(distinctive(row.variable));
  std::vector<std::string> near = near_names(distinctive(variable), known);
  for (std::string& one : near) one.insert(0, own_prefix);
  return near.empty() ? "" : str("; did you mean ", join(near, " or "), "?");
}

std::vector<std::string> unknown_variables() {
  std::vector<std::string> out;
  for (const std::string& name : variables()) {
    const auto is_this = [&](const SettingRow& row) { return row.variable == name; };
    if (!name.starts_with(own_prefix) || std::ranges::any_of(setting_rows(), is_this) ||
        std::ranges::find(read_elsewhere, distinctive(name)) != read_elsewhere.end())
      continue;
    out.push_back(str(name, " is set, and there is no such setting", near_settings(name)));
  }
  return out;
}

std::string_view name(LauncherVariable variable) {
  constexpr std::array<std::string_view, 18> names{"RANK",
                                                   "WORLD_SIZE",
                                                   "MASTER_ADDR",
                                                   "MASTER_PORT",
                                                   "LOCAL_WORLD_SIZE",
                                                   "PMI_FD",
                                                   "PMI_RANK",
                                                   "PMI_SIZE",
                                                   "OMPI_COMM_WORLD_RANK",
                                                   "SLURM_PROCID",
                                                   "SLURM_STEP_NUM_TASKS",
                                                   "SLURM_CLUSTER_NAME",
                                                   "SLURM_JOB_ID",
                                                   "SLURM_STEP_ID",
                                                   "SLURM_RESTART_COUNT",
                                                   "SLURM_TOPOLOGY_ADDR",
                                                   "SLURM_TOPOLOGY_ADDR_PATTERN",
                                                   "HOME"};
  return names[static_cast<std::size_t>(variable)];
}

std::optional<std::string> launcher_text(LauncherVariable variable) {
  const char* value = std::getenv(std::string(name(variable)).c_str());
  if (value == nullptr || *value == 0) return std::nullopt;
  return value;
}

Result<std::optional<std::int64_t>> launcher_integer(LauncherVariable variable) {
  const auto text = launcher_text(variable);
  if (!text) return std::optional<std::int64_t>();
  std::int64_t number = 0;
  const char* end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, number);
  if (parsed.ec != std::errc{} || parsed.ptr != end)
    return misuse("cannot read ", name(variable), "='", *text, "' as a whole number");
  return std::optional(number);
}

std::vector<std::string> launcher_traces() {
  std::vector<std::string> out = variables();
  std::erase_if(out, [](std::string_view one) {
    const auto begins = [&](std::string_view prefix) { return one.starts_with(prefix); };
    return std::ranges::find(launcher_names, one) == launcher_names.end() &&
           std::ranges::none_of(launcher_prefixes, begins);
  });
  return out;
}

}  // namespace unisono
