// Who drives a communicator's calls, and in which order.
//
// Collectives run one after another in the order of their calls; groups of messages run beside
// them. At any time at most one thread drives: it holds the driver's seat, a flag taken with one
// exchange. A thread that waits for its call takes the seat whenever it is free; while calls are
// pending and nobody waits, the progress thread (made at the first asynchronous call) takes it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/backoff.h"
#include "comm/connections.h"
#include "comm/task.h"

namespace unisono::comm {

// Says who has not joined a call, for a timeout's message, and who gave up; see board.h.
class Attendance {
 public:
  virtual ~Attendance() = default;
  virtual void joined(std::uint64_t sequence) = 0;
  // Ranks known not to have started call `sequence`, in order.
  virtual std::vector<int> absent(std::uint64_t sequence) const = 0;
  // This rank gives up for that fault. Any thread.
  virtual void give_up(const transport::Fault& fault) = 0;
  // What a rank that gave up told: connections tell it too, but not those that were never made.
  virtual std::optional<Error> told() const = 0;
};

class Scheduler {
 public:
  struct Options {
    int rank = 0;
    std::uint64_t communicator = 0;
    int spins = 1000;
    std::size_t record_slots = 1024;
  };
  Scheduler(Options options, Connections& connections, Attendance& attendance);
  ~Scheduler();

  // Runs a collective on the calling thread if nothing is before it, else queues it and waits.
  Status run(Task& task);
  // Queues; the task must live until it is done.
  Status submit(Task& task, bool is_collective);
  // Drives until the task is done, or until `until_ns` (of the steady clock): then a timeout error,
  // and the task goes on.
  Status wait(Task& task, std::int64_t until_ns);
  // Drives a little.
  void help();

  // All pending calls fail; so do later ones. Any thread. The first failure stays.
  void fail(const Error& error);
  Status failure() const;
  // No call is pending.
  bool idle() const { return pending_.load() == 0; }
  const trace::Ring& record() const { return record_; }
  // Holds the driver's seat while alive, so that nothing moves.
  class Pause;

  static std::int64_t now_ns();

 private:
  bool take_seat() { return !seat_.exchange(true, std::memory_order_acquire); }
  void leave_seat() { seat_.store(false, std::memory_order_release); }

  // With the seat: polls everything once. Whether anything moved.
  bool round();
  bool poll_collective();
  bool poll_messages();
  void start(Task& task);
  // Polls one running task; whether it moved.
  bool poll(Task& task);
  void finish(Task& task, std::shared_ptr<const Error> error);
  // Now and then while nothing moves: deadlines, the living of peers, abort.
  void look_around();
  void look_at(Task& task, std::int64_t now);
  void fail_pending(const std::shared_ptr<const Error>& error);
  Error timeout_of(const Task& task) const;
  std::shared_ptr<const Error> failure_pointer() const;
  void run_progress_thread();
  void wake_progress_thread();

  Options options_;
  Connections& connections_;
  Attendance& attendance_;
  trace::Ring record_;

  std::atomic<bool> seat_{false};
  // Sequentially consistent, both: a thread that leaves wait() and one that submits must not both
  // think that the other takes care of what is pending.
  std::atomic<int> pending_{0};  // calls not done
  std::atomic<int> waiters_{0};  // threads inside run() or wait()
  std::atomic<bool> failed_{false};

  // With the seat only.
  Task* current_ = nullptr;      // the collective that runs
  std::vector<Task*> messages_;  // groups of messages that run
  std::int64_t idle_rounds_ = 0;
  std::int64_t last_peer_check_ns_ = 0;

  std::mutex queue_mutex_;
  std::deque<Task*> queued_collectives_;
  std::deque<Task*> queued_messages_;
  std::atomic<bool> has_queued_{false};

  mutable std::mutex failure_mutex_;
  std::shared_ptr<const Error> failure_;

  std::mutex thread_mutex_;
  std::condition_variable thread_wake_;
  std::thread thread_;
  bool stopping_ = false;
};

class Scheduler::Pause {
 public:
  explicit Pause(Scheduler& scheduler);
  ~Pause() { scheduler_.leave_seat(); }
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;

 private:
  Scheduler& scheduler_;
};

}  // namespace unisono::comm
