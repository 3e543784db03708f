#include "base/call_options.h"

#include <functional>

#include "base/error.h"

namespace unisono {
namespace {

template <class Part>
void add(std::size_t& hash, const Part& part) {
  hash = hash * 1'000'003 + std::hash<Part>{}(part);
}

}  // namespace

std::size_t CallOptions::agreed_hash() const {
  std::size_t hash = 0;
  std::apply([&](const auto&... parts) { (add(hash, parts), ...); }, agreed());
  return hash;
}

Status check_options(const CallOptions& options, std::string_view where) {
  if (options.max_sms >= 0) return {};
  return misuse("max_sms is ", options.max_sms, where,
                "; it must be 1 or more, or 0 for the communicator's limit");
}

void fill_in(CallOptions& options, const CallOptions& defaults) {
  if (options.timeout.count() <= 0) options.timeout = defaults.timeout;
  if (!options.policy) options.policy = defaults.policy;
  if (options.max_sms == 0) options.max_sms = defaults.max_sms;
  options.compute_overlap |= defaults.compute_overlap;
}

}  // namespace unisono
