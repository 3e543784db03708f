#include "transport/ofi/providers.h"

#include <algorithm>
#include <array>

namespace unisono::transport::ofi {
namespace {

constexpr std::string_view tells_nothing =
    "it brings no completion data with a remote write, and keeps no order of writes";
constexpr std::string_view messages_alone = "it has no remote writes, only messages";

constexpr std::array<Provider, 15> providers{{
    {.name = "tcp", .least_version = FI_VERSION(1, 18)},
    {.name = "net"},
    {.name = "net;ofi_rxm"},
    {.name = "tcp;ofi_rxm"},
    // Libfabric 1.17.
    {.name = "verbs;ofi_rxm", .reads_when_closed = true},
    {.name = "shm"},
    // Before, its completions of writes with immediates can be wrong.
    {.name = "efa", .least_version = FI_VERSION(1, 20)},
    {.name = "efa-direct", .least_version = FI_VERSION(2, 2)},
    // Before 2.5 fi_writedata is an empty function, so that writes are told of by a ring.
    {.name = "cxi"},
    {.name = "opx", .refused = "it keeps no order of writes, and was never tried"},
    {.name = "ucx", .refused = tells_nothing},
    {.name = "lnx", .refused = messages_alone},
    {.name = "ofi_mrail", .refused = "it is experimental; Unisono uses several cards by itself"},
    {.name = "udp;ofi_rxd", .refused = "it is slower than tcp;ofi_rxm on every network"},
    {.name = "sockets", .refused = "libfabric has given it up for tcp;ofi_rxm"},
}};

constexpr std::array<Variable, 3> variables{{
    // Memory that a forked child shares would be taken from under the card.
    {.name = "FI_EFA_FORK_SAFE", .value = "1"},
    {.name = "FI_CXI_ENABLE_WRITEDATA", .value = "1"},
    // ofi_rxm asks a card for one completion queue with 256 entries for each of so many peers. Its
    // own 256 peers are refused by cards whose queues end at 65,535 entries, and by soft-RoCE,
    // whose end at 32,767.
    {.name = "FI_UNIVERSE_SIZE", .value = "127", .needs_a_card = true},
}};

}  // namespace

Provider provider_of(std::string_view name) {
  const auto* const row = std::ranges::find(providers, name, &Provider::name);
  return row == providers.end() ? Provider{.name = name} : *row;
}

std::string_view refusal(const Provider& provider, std::uint32_t version) {
  if (!provider.refused.empty()) return provider.refused;
  if (FI_VERSION_LT(version, provider.least_version)) return "this libfabric is too old for it";
  return {};
}

std::vector<Variable> needed_variables(bool has_card) {
  std::vector<Variable> out;
  for (const Variable& variable : variables)
    if (has_card || !variable.needs_a_card) out.push_back(variable);
  return out;
}

}  // namespace unisono::transport::ofi
