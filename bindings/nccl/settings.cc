#include "settings.h"

#include <algorithm>
#include <array>

#include "encryption.h"

namespace unisono::nccl {
namespace {

using enum SettingType;

constexpr std::array rows{
    SettingRow{
        Setting::host_memory, "UNISONO_NCCL_HOST_MEMORY", boolean, "0",
        "Lets libunisono_nccl.so take buffers for host memory and run calls at once, whatever "
        "their stream: for trying programs written for NCCL where there is no GPU."},
    SettingRow{Setting::comm_id, "NCCL_COMM_ID", text, "",
               "As in NCCL: host:port where rank 0 listens, so that every process can create the "
               "same unique id by itself. UNISONO_SECRET is its secret."},
};

const std::vector<Result<ProcessSetting>>& values() {
  // Never destroyed: a detached thread may ask while the process ends.
  static const auto& only = *[] {
    auto* read = new std::vector<Result<ProcessSetting>>;
    for (const SettingRow& row : rows)
      read->push_back(read_setting(row.variable, row.type, row.default_text));
    return read;
  }();
  return only;
}

}  // namespace

const Result<ProcessSetting>& value_of(Setting setting) {
  return values()[static_cast<std::size_t>(setting)];
}

std::vector<ProcessSetting> all_settings() {
  std::vector<ProcessSetting> out = process_settings();
  for (const auto& [variable, value] : encryption().settings())
    std::ranges::find(out, variable, &ProcessSetting::variable)->text = value;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& value = values()[i];
    out.push_back(value.ok() ? *value
                             : ProcessSetting{.variable = rows[i].variable,
                                              .text = std::string(rows[i].default_text),
                                              .is_number = rows[i].type != text});
  }
  return out;
}

}  // namespace unisono::nccl
