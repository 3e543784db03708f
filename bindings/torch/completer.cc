#include "completer.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <thread>

#include "work.h"

namespace unisono::pytorch {
namespace {

// How long a thread drives one operation before it looks at the others.
constexpr std::chrono::microseconds turn(200);
// How long a thread without work stays for the next.
constexpr std::chrono::seconds idle_patience(10);

// Whether this thread is one of a Completer's, which must not wait for itself.
thread_local const Completer* own_completer = nullptr;

// The threads of all Completers of this process. Never destroyed: they may outlive static objects.
struct AllThreads {
  std::mutex mutex;
  std::condition_variable ended;
  std::size_t count = 0;
  pid_t process = 0;  // a forked one has none of them
};
AllThreads& all_threads() {
  static auto* const all = new AllThreads;
  return *all;
}

void count_thread() {
  AllThreads& all = all_threads();
  const std::lock_guard lock(all.mutex);
  if (all.process != getpid()) all.count = 0;
  all.process = getpid();
  ++all.count;
}

void count_thread_ended() {
  AllThreads& all = all_threads();
  const std::lock_guard lock(all.mutex);
  --all.count;
  all.ended.notify_all();
}

}  // namespace

void Completer::hold(c10::intrusive_ptr<Work> work) {
  {
    const std::lock_guard lock(mutex_);
    held_.push_back(std::move(work));
  }
  settle_done();
}

void Completer::settle_done() {
  std::vector<c10::intrusive_ptr<Work>> done;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(held_, [&done](const auto& held) {
      if (!held->calls_done()) return false;
      done.push_back(held);
      return true;
    });
  }
  for (const auto& each : done) each->settle();
}

void Completer::watch(c10::intrusive_ptr<Work> work) {
  const std::lock_guard lock(mutex_);
  // A thread first: if there is none to be had, nothing is watched and the caller learns it.
  if (!is_driven_ && idle_ == 0) start_thread();
  watched_.push_back(std::move(work));
  wake_.notify_one();
}

std::vector<c10::intrusive_ptr<Work>> Completer::unfinished() {
  std::vector<c10::intrusive_ptr<Work>> out;
  const std::lock_guard lock(mutex_);
  for (const auto& work : held_)
    if (!work->calls_done()) out.push_back(work);
  return out;
}

void Completer::stop(Deadline deadline) {
  Lock lock(mutex_);
  stopping_ = true;
  wake_.notify_all();
  // The last reference to a backend may go in a callback of one of its own futures.
  const std::size_t own = own_completer == this ? 1 : 0;
  ended_.wait_until(lock, deadline, [&] { return threads_ <= own; });
}

void Completer::await_threads(Deadline deadline) {
  AllThreads& all = all_threads();
  Lock lock(all.mutex);
  if (all.process != getpid()) return;
  all.ended.wait_until(lock, deadline, [&all] { return all.count == 0; });
}

void Completer::start_thread() {
  const auto body = [self = shared_from_this()]() mutable {
    own_completer = self.get();
    {
      Lock lock(self->mutex_);
      self->run(lock);
      --self->threads_;
      self->ended_.notify_all();
    }
    own_completer = nullptr;
    self.reset();
    count_thread_ended();
  };
  count_thread();
  try {
    std::thread(body).detach();
  } catch (...) {
    count_thread_ended();
    throw;
  }
  ++threads_;
  ++idle_;  // until it looks for work
}

void Completer::run(Lock& lock) {
  while (await_turn(lock)) {
    c10::intrusive_ptr<Work> work = drive(lock);
    hand_over();
    lock.unlock();
    work->settle();
    work->complete_futures();
    work.reset();  // may run user code, too: the last reference to what a callback holds
    lock.lock();
    ++idle_;
  }
}

bool Completer::await_turn(Lock& lock) {
  const auto ready = [this] { return !is_driven_ && !watched_.empty(); };
  const bool in_time = wake_.wait_for(lock, idle_patience,
                                      [&] { return ready() || (stopping_ && watched_.empty()); });
  --idle_;
  return in_time && ready();
}

c10::intrusive_ptr<Work> Completer::drive(Lock& lock) {
  is_driven_ = true;
  c10::intrusive_ptr<Work> done;
  while (!(done = take_done())) {
    // Collectives complete in their order: while the first runs, only messages can overtake it.
    const c10::intrusive_ptr<Work> first = watched_.front();
    lock.unlock();
    first->drive(turn);
    lock.lock();
  }
  is_driven_ = false;
  return done;
}

c10::intrusive_ptr<Work> Completer::take_done() {
  const auto found = std::find_if(watched_.begin(), watched_.end(),
                                  [](const auto& work) { return work->calls_done(); });
  if (found == watched_.end()) return {};
  c10::intrusive_ptr<Work> work = std::move(*found);
  watched_.erase(found);
  return work;
}

void Completer::hand_over() {
  if (watched_.empty()) return;
  if (idle_ > 0) {
    wake_.notify_one();
    return;
  }
  try {
    start_thread();
  } catch (const std::system_error& error) {
    // The others' futures are late by the callbacks of this one.
    TORCH_WARN("there is no thread to complete futures while a callback runs: ", error.what());
  }
}

}  // namespace unisono::pytorch
