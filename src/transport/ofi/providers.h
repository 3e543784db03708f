// What is known of libfabric's providers, a row for each.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace unisono::transport::ofi {

// An environment variable that a provider reads when libfabric is first called.
struct Variable {
  const char* name;
  const char* value;
  bool needs_a_card = false;  // that libibverbs lists: other providers read the variable, too
};

struct Provider {
  std::string_view name;  // as libfabric gives it, with a provider that stands in front of it
  std::uint32_t least_version = FI_VERSION(1, 17);  // of libfabric
  std::string_view refused = {};                    // why it is not used; empty: it is
  // Its completions must be taken before an endpoint is closed, because it reads them afterwards.
  bool reads_when_closed = false;
};

// One that is not known is used if it has what is asked for.
Provider provider_of(std::string_view name);

// Why this libfabric's provider is not used, or empty.
std::string_view refusal(const Provider& provider, std::uint32_t version);

// What providers need to be told, unless the user has said it, on a host with a card of verbs or
// without one.
std::vector<Variable> needed_variables(bool has_card);

}  // namespace unisono::transport::ofi
