#include "comm/run/launches.h"

#include <algorithm>

namespace unisono::comm {
namespace {

constexpr std::size_t most_captured = 4096;

}  // namespace

void Launches::saw_ended(std::uint64_t launch, std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (launch == 0 || closed_ || (!seen_.empty() && seen_.back().launch >= launch)) return;
  seen_.push_back({launch, now_ns, trace::State::ended});
  if (seen_.size() > most_) seen_.pop_front();
}

void Launches::saw(const StreamCalls::Stamped& stamped) {
  const std::lock_guard lock(mutex_);
  is_running_ = !stamped.has_ended;
  if (!stamped.launch.is_captured) {
    stamps_[stamped.launch.number % most_] = stamped;
    return;
  }
  if (!replays_.empty() && replays_.back().stamped.run == stamped.run) {
    replays_.back().stamped = stamped;
    return;
  }
  const auto known = captured_.find(stamped.launch.number);
  if (known == captured_.end()) return;
  replays_.push_back({stamped, ++known->second.replays});
  if (replays_.size() > most_) replays_.pop_front();
}

void Launches::set_clock_offset(std::int64_t offset_ns) {
  const std::lock_guard lock(mutex_);
  clock_offset_ns_ = offset_ns;
}

void Launches::captured(const trace::Entry& entry) {
  const std::lock_guard lock(mutex_);
  captured_[entry.launch].entries.push_back(entry);
  if (captured_.size() > most_captured) captured_.erase(captured_.begin());
}

void Launches::close(trace::State state, std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (!closed_) closed_ = Seen{0, now_ns, state};
}

void Launches::apply(const StreamCalls::Stamped& stamped, trace::Entry& entry) const {
  const auto on_host = [&](std::int64_t ns) { return ns + clock_offset_ns_; };
  entry.state = stamped.has_ended ? trace::State::ended : trace::State::started;
  // The clocks' difference is not known so well that a kernel could not seem to begin too early.
  if (stamped.begin_ns != 0)
    entry.started_ns = std::max(on_host(stamped.begin_ns), entry.scheduled_ns);
  if (stamped.has_ended)
    entry.ended_ns =
        std::max(on_host(stamped.end_ns), std::max(entry.started_ns, entry.scheduled_ns));
}

void Launches::close(const Seen& told, trace::Entry& entry) const {
  if (entry.state == trace::State::ended) return;
  entry.state = told.state;
  entry.ended_ns = told.time_ns;
}

void Launches::apply(std::vector<trace::Entry>& entries) const {
  const std::lock_guard lock(mutex_);
  for (trace::Entry& entry : entries) {
    if (entry.launch == 0 || entry.is_captured || entry.state != trace::State::scheduled) continue;
    const StreamCalls::Stamped& stamped = stamps_[entry.launch % most_];
    if (stamped.launch.number == entry.launch) apply(stamped, entry);
    const auto seen = std::ranges::lower_bound(seen_, entry.launch, {}, &Seen::launch);
    if (seen != seen_.end())
      close(*seen, entry);
    else if (closed_)
      close(*closed_, entry);
  }
}

std::vector<trace::Entry> Launches::replays() const {
  const std::lock_guard lock(mutex_);
  std::vector<trace::Entry> out;
  for (const Replay& replay : replays_) {
    const auto known = captured_.find(replay.stamped.launch.number);
    if (known == captured_.end()) continue;
    for (trace::Entry entry : known->second.entries) {
      entry.launched_ns = 0;
      entry.is_captured = false;
      entry.replay = replay.number;
      apply(replay.stamped, entry);
      if (closed_) close(*closed_, entry);
      out.push_back(entry);
    }
  }
  return out;
}

bool Launches::is_running() const {
  const std::lock_guard lock(mutex_);
  return is_running_;
}

}  // namespace unisono::comm
