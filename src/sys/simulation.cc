#include <algorithm>
#include <functional>
#include <utility>

#include "sys/simulated_process.h"
#include "sys/strand.h"

namespace unisono::sys {

Simulation::Simulation(SimulationOptions options) : options_(options), random_(options.seed) {}

Simulation::~Simulation() {
  // What is closed from here on is no act of a process, and what the watcher refers to may be gone.
  watcher_ = nullptr;
  ready_strands_.clear();
  // Tasks use everything else; what they close on their way out must still find it.
  for (const auto& world : worlds_) world->tasks_.cancel_all();
  // One by one: a stream that is dropped with its event schedules its end.
  while (!events_.empty()) take_first();
}

int Simulation::add_process(const std::string& host) {
  worlds_.push_back(
      std::make_unique<SimulatedWorld>(*this, static_cast<int>(worlds_.size()), host, random_()));
  return static_cast<int>(worlds_.size()) - 1;
}

World& Simulation::world(int process) { return *worlds_[static_cast<std::size_t>(process)]; }

Task<void> Simulation::counted(SimulatedWorld& world, Task<void> task) {
  co_await task;
  --world.running_;
  --running_;
}

void Simulation::start(int process, Task<void> task) {
  SimulatedWorld& world = *worlds_[static_cast<std::size_t>(process)];
  ++world.running_;
  ++running_;
  world.tasks_.spawn(counted(world, std::move(task)));
}

bool Simulation::is_alive(int process) const {
  return worlds_[static_cast<std::size_t>(process)]->is_alive_;
}

void Simulation::kill(int process, Death death) {
  SimulatedWorld& world = *worlds_[static_cast<std::size_t>(process)];
  note(static_cast<std::uint64_t>(process));
  world.is_alive_ = false;
  world.is_host_lost_ = death == Death::host;
  running_ -= std::exchange(world.running_, 0);
  world.tasks_.cancel_all();
  world.cut_off();
}

void Simulation::cut(int process, int other, std::int64_t until_ns) {
  std::int64_t& known = cut_until_ns_[std::minmax({process, other})];
  known = std::max(known, until_ns);
}

std::int64_t Simulation::cut_until_ns(int process, int other) const {
  const auto found = cut_until_ns_.find(std::minmax({process, other}));
  return found == cut_until_ns_.end() ? 0 : found->second;
}

void Simulation::stop(int process, std::int64_t until_ns) {
  std::int64_t& known = worlds_[static_cast<std::size_t>(process)]->stopped_until_ns_;
  known = std::max(known, until_ns);
}

void Simulation::schedule(std::int64_t time_ns, std::function<void()> happen) {
  events_.push_back({time_ns, ++last_event_, std::move(happen)});
  std::ranges::push_heap(events_, std::greater());
}

const Traffic& Simulation::traffic(int process) const {
  return worlds_[static_cast<std::size_t>(process)]->traffic_;
}

std::int64_t Simulation::after_delay(std::int64_t from_ns) {
  const auto range = static_cast<std::uint64_t>(options_.max_delay_ns - options_.min_delay_ns + 1);
  return from_ns + options_.min_delay_ns + static_cast<std::int64_t>(random_() % range);
}

std::int64_t Simulation::turn_ns() {
  const auto range = static_cast<std::uint64_t>(options_.max_turn_ns - options_.min_turn_ns + 1);
  return options_.min_turn_ns + static_cast<std::int64_t>(random_() % range);
}

bool Simulation::draw(double probability) {
  if (probability <= 0) return false;
  return static_cast<double>(random_() >> 11) * 0x1p-53 < probability;
}

// FNV-1a over words.
void Simulation::note(std::uint64_t what) {
  for (const std::uint64_t word : {static_cast<std::uint64_t>(now_ns_), what})
    trace_hash_ = (trace_hash_ ^ word) * 0x100000001b3;
}

bool Simulation::is_quiet() const {
  return !scheduler_.has_ready() && scheduler_.next_deadline_ns() == no_deadline_ns;
}

Simulation::Event Simulation::take_first() {
  std::ranges::pop_heap(events_, std::greater());
  Event out = std::move(events_.back());
  events_.pop_back();
  return out;
}

bool Simulation::run(std::int64_t until_ns) {
  for (;;) {
    scheduler_.run_ready();
    run_strands();
    if (running_ == 0) return true;
    const std::int64_t deadline_ns = scheduler_.next_deadline_ns();
    const std::int64_t event_ns = events_.empty() ? no_deadline_ns : events_.front().time_ns;
    const std::int64_t next_ns = std::min(deadline_ns, event_ns);
    if (next_ns == no_deadline_ns || next_ns > until_ns) return false;
    now_ns_ = std::max(now_ns_, next_ns);
    if (event_ns <= deadline_ns) {
      const Event event = take_first();
      note(event.number);
      event.happen();
    } else {
      scheduler_.expire(now_ns_);
    }
  }
}

}  // namespace unisono::sys
