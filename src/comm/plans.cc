#include "comm/plans.h"

#include "base/try.h"

namespace unisono::comm {

std::size_t Plans::KeyHash::operator()(const Key& key) const {
  std::size_t hash = std::hash<const void*>{}(key.entry);
  for (int part :
       {static_cast<int>(key.protocol), static_cast<int>(key.in_place), key.channels, key.root})
    hash = hash * 1000003 + static_cast<std::size_t>(part);
  return hash;
}

Result<Plans::Chosen> Plans::choose(Collective collective, std::uint64_t bytes, int root,
                                    bool in_place, const CallOptions& options) {
  const std::lock_guard lock(mutex_);
  Chosen chosen;
  UNISONO_ASSIGN(chosen.choice, selection_.choose(collective, bytes, root, in_place, options));
  const Choice& choice = chosen.choice;
  UNISONO_ASSIGN(
      chosen.execution,
      execution({choice.entry, choice.protocol, in_place, choice.channels, root}, collective));
  return chosen;
}

Result<engine::Execution*> Plans::execution(const Key& key, Collective collective) {
  auto found = executions_.find(key);
  if (found == executions_.end()) {
    const algorithm::Request request = selection_.request(
        collective, {key.entry, key.protocol, key.channels}, key.root, key.in_place);
    UNISONO_ASSIGN(const plan::Header header, algorithm::make_header(*key.entry, request));
    UNISONO_ASSIGN(const plan::RankProgram program,
                   algorithm::make_program(*key.entry, request, rank_));
    UNISONO_ASSIGN(auto made, make_(header, program));
    found = executions_.emplace(key, std::move(made)).first;
  }
  return found->second.get();
}

Result<std::string> Plans::explain(Collective collective, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  return selection_.explain(collective, bytes);
}

std::size_t Plans::memory_bytes() {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& [key, execution] : executions_) bytes += execution->memory_bytes();
  return bytes;
}

}  // namespace unisono::comm
