#include "comm/run/launches.h"

#include <algorithm>

namespace unisono::comm {

void Launches::saw_ended(std::uint64_t launch, std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (launch == 0 || closed_ || (!seen_.empty() && seen_.back().launch >= launch)) return;
  seen_.push_back({launch, now_ns, trace::State::ended});
  if (seen_.size() > most_) seen_.pop_front();
}

void Launches::close(trace::State state, std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (!closed_) closed_ = Seen{0, now_ns, state};
}

void Launches::apply(std::vector<trace::Entry>& entries) const {
  const std::lock_guard lock(mutex_);
  for (trace::Entry& entry : entries) {
    if (entry.launch == 0 || entry.is_captured || entry.state != trace::State::scheduled) continue;
    const auto seen = std::ranges::lower_bound(seen_, entry.launch, {}, &Seen::launch);
    if (seen == seen_.end() && !closed_) continue;
    const Seen& told = seen == seen_.end() ? *closed_ : *seen;
    entry.state = told.state;
    entry.ended_ns = told.time_ns;
  }
}

}  // namespace unisono::comm
