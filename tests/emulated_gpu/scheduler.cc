#include "scheduler.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

namespace unisono::emulated {
namespace {

// A waiting thread lets others run after so many steps of nothing, and sleeps after more.
constexpr std::uint64_t steps_before_yielding = 64;
constexpr std::uint64_t steps_before_sleeping = 4096;
constexpr auto sleep = std::chrono::microseconds(50);
constexpr int steps_of_call = 16;
// The scheduler's thread takes over where calls have not driven for so long.
constexpr auto patience = std::chrono::seconds(1);

std::uint64_t first_seed() {
  const char* const given = std::getenv("UNISONO_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

int open_process_lock() {
  const std::string path = "/tmp/unisono_emulated_gpu." + std::to_string(geteuid()) + ".lock";
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0) {
    std::perror(path.c_str());
    std::abort();
  }
  return descriptor;
}

}  // namespace

Operation at_once(std::function<void()> action) {
  return [action = std::move(action)]() -> Attempt {
    return [&action](Random&) {
      action();
      return Progress::complete;
    };
  };
}

// Never destroyed: its thread runs until the process ends. A forked process has none of its
// parent's threads, and so a scheduler of its own.
Scheduler& scheduler() {
  static Scheduler* only = [] {
    pthread_atfork(nullptr, nullptr, [] { only = new Scheduler; });
    return new Scheduler;
  }();
  return *only;
}

Scheduler::Scheduler() { seed(first_seed()); }

void Scheduler::seed(std::uint64_t seed) {
  const std::lock_guard lock(mutex_);
  random_.seed(static_cast<Random::result_type>(seed ^ seed >> 32));
  trace_ = 0;
}

std::uint64_t Scheduler::trace() {
  const std::lock_guard lock(mutex_);
  return trace_;
}

void Scheduler::drive_by_calls(bool does) {
  const std::lock_guard lock(mutex_);
  drives_by_calls_ = does;
  changed_.notify_all();
  mode_changed_.notify_all();
}

void Scheduler::share_with_processes() {
  const std::lock_guard lock(mutex_);
  if (process_lock_ < 0) process_lock_ = open_process_lock();
}

void Scheduler::step(Lock& lock) {
  changed_.wait(lock, [this] { return !is_stepping_; });
  if (busy_.empty()) return;
  const std::size_t chosen = busy_.size() > 1 ? random_() % busy_.size() : 0;
  Stream& stream = *busy_[chosen];
  if (!stream.begun_) stream.begun_ = stream.operations_.front()();
  const int process_lock = process_lock_;
  is_stepping_ = true;
  lock.unlock();
  if (process_lock >= 0) flock(process_lock, LOCK_EX);
  const Progress progress = stream.begun_(random_);
  if (process_lock >= 0) flock(process_lock, LOCK_UN);
  const bool lets_others_run = progress == Progress::none && ++idle_steps_ > steps_before_yielding;
  if (progress != Progress::none) idle_steps_ = 0;
  if (lets_others_run && idle_steps_ > steps_before_sleeping)
    std::this_thread::sleep_for(sleep);
  else if (lets_others_run)
    std::this_thread::yield();
  lock.lock();
  is_stepping_ = false;
  // FNV-1a.
  trace_ = (trace_ ^ (chosen * 4 + static_cast<std::size_t>(progress))) * 0x100000001b3U;
  if (progress == Progress::complete) {
    stream.begun_ = nullptr;
    stream.operations_.pop_front();
    if (stream.operations_.empty()) {
      std::swap(busy_[chosen], busy_.back());
      busy_.pop_back();
    }
  }
  if (progress == Progress::complete || drives_by_calls_) changed_.notify_all();
}

template <class Condition>
void Scheduler::wait_until(Lock& lock, Condition condition) {
  while (!condition()) {
    if (drives_by_calls_) {
      ++calls_;
      step(lock);
    } else {
      changed_.wait(lock, [&] { return drives_by_calls_ || condition(); });
    }
  }
}

void Scheduler::step_by_call() {
  Lock lock(mutex_);
  if (!drives_by_calls_) return;
  ++calls_;
  for (int i = 0; i < steps_of_call && !busy_.empty(); ++i) step(lock);
}

void Scheduler::work() {
  Lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !busy_.empty(); });
    if (drives_by_calls_) {
      const std::uint64_t before = calls_;
      mode_changed_.wait_for(lock, patience, [this] { return !drives_by_calls_; });
      while (drives_by_calls_ && calls_ == before && !busy_.empty()) step(lock);
      continue;
    }
    step(lock);
  }
}

void Stream::add(Operation operation) {
  if (capture != nullptr) {
    capture->operations.push_back(std::move(operation));
    return;
  }
  Scheduler& all = scheduler();
  Scheduler::Lock lock(all.mutex_);
  if (!all.has_worker_) {
    std::thread(&Scheduler::work, &all).detach();
    all.has_worker_ = true;
  }
  all.wait_until(lock, [this] { return operations_.size() < most_operations; });
  operations_.push_back(std::move(operation));
  if (operations_.size() > 1) return;
  all.busy_.push_back(this);
  all.changed_.notify_all();
}

void Stream::synchronize() {
  Scheduler& all = scheduler();
  Scheduler::Lock lock(all.mutex_);
  all.wait_until(lock, [this] { return operations_.empty(); });
}

bool Stream::query() {
  Scheduler& all = scheduler();
  all.step_by_call();
  const Scheduler::Lock lock(all.mutex_);
  return operations_.empty();
}

}  // namespace unisono::emulated
