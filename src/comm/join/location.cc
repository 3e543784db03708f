#include "comm/join/location.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/try.h"
#include "sys/host.h"

namespace unisono::comm {
namespace {

std::string_view short_name(std::string_view host) { return host.substr(0, host.find('.')); }

std::vector<std::string_view> components(std::string_view text) {
  std::vector<std::string_view> out;
  for (;;) {
    const auto dot = text.find('.');
    out.push_back(text.substr(0, dot));
    if (dot == std::string_view::npos) return out;
    text = text.substr(dot + 1);
  }
}

}  // namespace

Result<topo::Location> location_from_settings(const Settings& settings) {
  const std::string& text = settings.text(Setting::levels);
  if (text == "none") return topo::Location();
  auto location = topo::parse_location(text);
  if (!location.ok())
    return misuse("UNISONO_LEVELS is '", text.substr(0, topo::max_location_bytes),
                  "': ", location.error().message);
  return location;
}

Result<topo::Location> location_from_slurm(std::string_view address, std::string_view pattern,
                                           std::string_view host) {
  const auto error = [&](const auto&... why) {
    return misuse("SLURM_TOPOLOGY_ADDR is '", address, "' and SLURM_TOPOLOGY_ADDR_PATTERN is '",
                  pattern, "': ", why...);
  };
  const std::vector<std::string_view> kinds = components(pattern);
  std::vector<std::string_view> names = components(address);
  if (kinds.back() != "node") return error("the pattern must end with 'node'");
  if (names.size() < kinds.size())
    return error("the address has ", names.size(), " parts; it needs ", kinds.size());
  // A node's name may have dots.
  const std::string_view first_of_node = names[kinds.size() - 1];
  if (first_of_node != short_name(host))
    return error("they are those of node '", first_of_node, "', and this host is '",
                 short_name(host), "'");
  topo::Location out;
  for (std::size_t i = kinds.size() - 1; i-- > 0 && out.size() < topo::max_levels;) {
    const bool is_only = std::ranges::count(kinds, kinds[i]) == 1;
    const auto number =
        std::count(kinds.begin() + static_cast<std::ptrdiff_t>(i), kinds.end(), kinds[i]);
    out.push_back({is_only ? std::string(kinds[i]) : str(kinds[i], number), std::string(names[i])});
  }
  const auto readable = topo::parse_location(topo::to_text(out));
  if (!readable.ok()) return error(readable.error().message);
  return out;
}

Result<OwnLocation> own_location(const Settings& settings) {
  OwnLocation out;
  if (!settings.text(Setting::levels).empty()) {
    UNISONO_ASSIGN(out.location, location_from_settings(settings));
    return out;
  }
  const auto address = launcher_text(LauncherVariable::slurm_topology_addr);
  const auto pattern = launcher_text(LauncherVariable::slurm_topology_addr_pattern);
  if (!address || !pattern) return out;
  auto location = location_from_slurm(*address, *pattern, sys::host_name());
  // A job that needs no levels runs on.
  if (!location.ok()) {
    log(LogLevel::info, "the levels of Slurm are not used: ", location.error().message);
    return out;
  }
  out.location = std::move(*location);
  out.is_launchers = !out.location.empty();
  return out;
}

}  // namespace unisono::comm
