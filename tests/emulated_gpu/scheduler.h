// Decides, by a seed, which stream of the emulated devices does something next. One thread at a
// time runs what streams do, kernels' fibers included: a thread of the scheduler's own, or, while
// tests ask for it (drive_by_calls), the threads that wait for streams. Then a test whose calls are
// made by one thread has the same interleaving whenever it has the same seed.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "simt.h"

namespace unisono::emulated {

// Goes on with an operation that has begun; again, until it is complete.
using Attempt = std::function<Progress(Random&)>;
// Begins it. A graph's operations begin once for each launch.
using Operation = std::function<Attempt()>;
// One that is complete once it has begun.
Operation at_once(std::function<void()> action);

struct Graph {
  std::vector<Operation> operations;  // in an order that they may have
};

class Scheduler;
Scheduler& scheduler();

// Its operations, one after another.
class Stream {
 public:
  Stream() = default;
  ~Stream() { synchronize(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  // Or into the graph that is being captured. Waits until the stream has room, as a driver does.
  void add(Operation operation);
  void synchronize();
  // Whether nothing is left to do; gives devices the time of a few operations.
  bool query();

  Graph* capture = nullptr;

 private:
  friend class Scheduler;
  static constexpr std::size_t most_operations = 1024;

  std::deque<Operation> operations_;
  Attempt begun_;
};

class Scheduler {
 public:
  Scheduler();
  // From now on choices follow from `seed`, and the trace begins anew.
  void seed(std::uint64_t seed);
  // A hash of all choices since then, and of what came of them.
  std::uint64_t trace();
  void drive_by_calls(bool does);
  // A few steps, where calls drive.
  void step_by_call();
  // From now on memory is shared with other processes, one of which does something at a time.
  void share_with_processes();

 private:
  friend class Stream;
  using Lock = std::unique_lock<std::mutex>;
  // Runs one stream's operation for a while.
  void step(Lock& lock);
  template <class Condition>
  void wait_until(Lock& lock, Condition condition);
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable mode_changed_;
  std::vector<Stream*> busy_;
  Random random_;
  std::uint64_t trace_ = 0;
  std::uint64_t idle_steps_ = 0;  // in which nothing went on, in a row
  std::uint64_t calls_ = 0;       // that have driven
  bool is_stepping_ = false;
  bool drives_by_calls_ = false;
  bool has_worker_ = false;
  int process_lock_ = -1;  // a descriptor
};

}  // namespace unisono::emulated
