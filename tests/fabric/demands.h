// What one offer of the provider asks for, limits and gets wrong, as the provider's name says it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace unisono::test::fabric {

// Behind the demands in a provider's name: "local+keys=4;ofi_demanding". libfabric takes a name
// with this prefix for a provider that lies over another one, and hands it the whole name.
inline constexpr const char* provider_name = "ofi_demanding";

struct Demands {
  // Registration. Without `is_virtual`, peers name memory by offsets and the caller chooses keys.
  bool is_local = false;     // FI_MR_LOCAL
  bool is_endpoint = false;  // FI_MR_ENDPOINT
  bool is_virtual = false;   // FI_MR_VIRT_ADDR, FI_MR_ALLOCATED and FI_MR_PROV_KEY
  std::size_t key_bytes = 8;

  // Limits; 0 is none.
  std::size_t most_completions = 0;
  std::size_t most_message_bytes = 0;
  std::size_t most_write_bytes = 0;

  // Transfers.
  bool is_unordered = false;  // writes are split, and their pieces arrive in any order
  bool is_late = false;       // writes land after their completion, unless it waits for delivery
  bool is_busy = false;       // sends and writes are answered with -FI_EAGAIN in bursts
  bool is_full = false;       // so are receives
  bool is_anonymous = false;  // errors of writes do not say which one failed

  // Completion data. The last three offer it.
  bool has_no_data = false;
  bool refuses_message_data = false;  // fi_writemsg refuses it, fi_writedata does not
  bool refuses_data = false;          // both refuse it
  bool loses_data = false;            // it never arrives

  std::uint64_t seed = 1;

  int mr_mode() const;
  // Whether writes wait here before the provider beneath has them.
  bool holds_writes() const { return is_unordered || is_late; }
};

// The demands of a provider's whole name; none where it is another provider's, or where one of them
// is unknown.
std::optional<Demands> parse(std::string_view name);

}  // namespace unisono::test::fabric
