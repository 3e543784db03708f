// Blocking code in the simulated world.

#include <algorithm>

#include "sys/strand.h"

namespace unisono::sys {
namespace {

// What a look at the clock costs. It lets loops end that wait for a time to pass.
constexpr std::int64_t clock_ns = 25;

}  // namespace

class SimulatedThread final : public Thread {
 public:
  SimulatedThread(Simulation& simulation, Simulation::Strand& strand)
      : simulation_(simulation), strand_(strand) {}
  void join() override {
    while (!strand_.fiber.has_ended()) simulation_.park(&strand_.ended, no_deadline_ns);
  }

 private:
  Simulation& simulation_;
  Simulation::Strand& strand_;
};

class SimulatedCondition final : public Condition {
 public:
  explicit SimulatedCondition(SimulatedWorld& world) : world_(world) {}
  void notify_all() override { changed_.notify_all(); }
  void wait_for(std::unique_lock<std::mutex>& lock, std::int64_t at_most_ns) override {
    lock.unlock();
    world_.simulation_.reach(world_.process_, "thread.wait");
    world_.simulation_.park(&changed_, world_.now_ns() + at_most_ns);
    lock.lock();
  }

 private:
  SimulatedWorld& world_;
  WaitQueue changed_;
};

Simulation::Strand& Simulation::spawn(SimulatedWorld& world, std::function<void()> run) {
  strands_.push_back(std::make_unique<Strand>(world, std::move(run)));
  Strand& strand = *strands_.back();
  strand.waking.emplace(wake_each_time(strand));
  strand.waking->start();
  ready_strands_.push_back(&strand);
  return strand;
}

void Simulation::start(int process, std::function<void()> run) {
  SimulatedWorld& world = *worlds_[static_cast<std::size_t>(process)];
  ++world.running_;
  ++running_;
  spawn(world, [this, &world, run = std::move(run)] {
    run();
    --world.running_;
    --running_;
  });
}

// A process that dies is left where it stands: neither its fibers nor what wakes them go on.
void Simulation::run_strands() {
  while (!ready_strands_.empty()) {
    Strand& strand = *ready_strands_.front();
    ready_strands_.pop_front();
    if (!strand.world.is_alive_ || strand.fiber.has_ended()) continue;
    if (strand.world.stopped_until_ns_ > now_ns_) {
      schedule(strand.world.stopped_until_ns_,
               [this, &strand] { ready_strands_.push_back(&strand); });
      continue;
    }
    current_ = &strand;
    strand.world.ahead_ns_ = 0;
    strand.fiber.resume();
    strand.world.ahead_ns_ = 0;
    current_ = nullptr;
    if (strand.fiber.has_ended()) strand.ended.notify_all();
    scheduler_.run_ready();
  }
}

Task<void> Simulation::wake_each_time(Strand& strand) {
  struct UntilItParks {
    Strand& strand;
    bool await_ready() { return false; }
    void await_suspend(std::coroutine_handle<> self) { strand.waker = self; }
    void await_resume() {}
  };
  for (;;) {
    UntilItParks parks{strand};
    co_await parks;
    if (strand.awaited != nullptr) {
      Wait wait(scheduler_, *strand.awaited, strand.deadline_ns);
      strand.was_notified = co_await wait;
    } else {
      Wait wait(scheduler_, strand.deadline_ns);
      strand.was_notified = co_await wait;
    }
    ready_strands_.push_back(&strand);
  }
}

bool Simulation::park(WaitQueue* queue, std::int64_t deadline_ns) {
  Strand& strand = *current_;
  // It is that far ahead of the others; nothing that they do reaches it before.
  const std::int64_t own_ns = now_ns_ + std::exchange(strand.world.ahead_ns_, 0);
  strand.awaited = queue;
  strand.deadline_ns = std::max(deadline_ns, own_ns);
  resume_chain(strand.waker);
  strand.fiber.suspend();
  return strand.was_notified;
}

void Simulation::reach(int process, std::string_view place) {
  SimulatedWorld& world = *worlds_[static_cast<std::size_t>(process)];
  if (!watcher_ || !world.is_alive_) return;
  watcher_(process, place);
  // Killed here, its thread does not take one step more.
  if (!world.is_alive_ && current_ != nullptr && &current_->world == &world)
    current_->fiber.suspend();
}

void Simulation::interrupt(int process) {
  if (current_ == nullptr || &current_->world != worlds_[static_cast<std::size_t>(process)].get())
    return;
  const std::int64_t turns = std::int64_t{1} << random_() % 6;
  park(nullptr, now_ns_ + current_->world.ahead_ns_ + turns * turn_ns());
}

std::size_t Simulation::open_streams() const {
  std::size_t open = 0;
  for (const auto& world : worlds_) open += world->is_alive_ ? world->streams_.size() : 0;
  return open;
}

std::size_t Simulation::open_listeners() const {
  std::size_t open = 0;
  for (const auto& world : worlds_) open += world->is_alive_ ? world->listeners_.size() : 0;
  return open;
}

std::size_t Simulation::running_threads() const {
  return static_cast<std::size_t>(std::ranges::count_if(strands_, [](const auto& strand) {
    return strand->world.is_alive_ && !strand->fiber.has_ended();
  }));
}

void Simulation::wake(int process) {
  worlds_[static_cast<std::size_t>(process)]->events_.notify_all();
}

std::int64_t SimulatedWorld::now_ns() const {
  if (simulation_.current_ == nullptr) return simulation_.now_ns_;
  ahead_ns_ += clock_ns;
  return simulation_.now_ns_ + ahead_ns_;
}

Result<std::unique_ptr<Thread>> SimulatedWorld::start_thread(std::string_view,
                                                             std::function<void()> run) {
  simulation_.reach(process_, "thread.start");
  return std::unique_ptr<Thread>(
      std::make_unique<SimulatedThread>(simulation_, simulation_.spawn(*this, std::move(run))));
}

std::unique_ptr<Condition> SimulatedWorld::make_condition() {
  return std::make_unique<SimulatedCondition>(*this);
}

void SimulatedWorld::yield() {
  simulation_.reach(process_, "thread.yield");
  simulation_.park(nullptr, now_ns() + simulation_.turn_ns());
}

void SimulatedWorld::sleep(std::int64_t at_most_ns, std::span<const int> event_descriptors) {
  simulation_.reach(process_, "thread.sleep");
  WaitQueue* const queue = !event_descriptors.empty() ? &events_ : nullptr;
  simulation_.park(queue, now_ns() + std::max<std::int64_t>(at_most_ns, 0) + simulation_.turn_ns());
}

void SimulatedWorld::drive(Task<void>& task) {
  simulation_.reach(process_, "task.run");
  struct Ending {
    bool is_there = false;
    WaitQueue reached;
  } ending;
  const auto tell = [](Task<void>& of, Ending& end) -> Task<void> {
    co_await of;
    end.is_there = true;
    end.reached.notify_all();
  };
  auto told = tell(task, ending);
  told.start();
  while (!ending.is_there) simulation_.park(&ending.reached, no_deadline_ns);
}

}  // namespace unisono::sys
