// Who drives a communicator's calls, and in which order.
//
// Collectives run one after another in the order of their calls; groups of messages run at
// the same time. At most one thread drives progress: it holds the progress lock, a flag taken with
// one exchange. A thread that waits for its call takes the lock whenever it is free; while calls
// are pending and nobody waits, the progress thread (made at the first asynchronous call) takes it.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/blame/inquiry.h"
#include "comm/join/bootstrap.h"
#include "comm/run/backoff.h"
#include "comm/run/call_log.h"
#include "comm/run/connections.h"
#include "comm/run/prepared_call.h"
#include "comm/run/status_page.h"
#include "comm/run/stream_calls.h"
#include "comm/run/task.h"
#include "sys/call_clock.h"
#include "sys/exit.h"
#include "sys/world.h"

namespace unisono::comm {

class Scheduler {
 public:
  struct Options {
    int rank = 0;
    std::uint64_t communicator = 0;
    std::string group;
    int spins = 1000;
    bool adapts_spins = false;  // see SpinChoice
    std::int64_t longest_sleep_ns = Backoff::longest_sleep_ns;
    std::size_t record_slots = 1024;
    // Called once, on the thread that drives, when the communicator has failed and the record is
    // closed, before waiting threads see the failure.
    std::function<void(const Error&)> on_failure;
  };
  // What ranks tell each other of failures goes over the connections that there are, over the
  // status page inside a node, and over the control group between nodes.
  Scheduler(Options options, sys::World& world, Connections& connections, StatusPage& status_page,
            ControlGroup& group);
  ~Scheduler();

  // Runs a call that nothing is before: try_begin_inline(), then run_inline() once or end_inline().
  // None of them locks, allocates or calls the system while the peers keep up.
  bool try_begin_inline() {
    if (!idle() || !try_lock_progress()) return false;
    if (idle() && !failed_.load(std::memory_order_acquire) && !inquest_) [[likely]]
      return true;
    unlock_progress();
    return false;
  }
  void end_inline() { unlock_progress(); }
  // With the progress lock, which it gives up: runs the call to its end.
  void run_inline(PreparedCall& call, Status& outcome) {
    if (!try_in_turn(call, outcome)) outcome = wait_after_inline(call, outcome);
  }

  // Runs a collective on the calling thread if nothing is before it, else queues it and waits.
  Status run(Task& task);
  // Starts the task if nothing is before it, and runs it for about as long as handing it over to
  // the progress thread would take; else queues it. The task must live until it is done.
  Status submit(Task& task);
  // Drives until the task is done, or until `until_ns` (of the steady clock): then a timeout error,
  // and the task goes on.
  Status wait(Task& task, std::int64_t until_ns);
  // Drives a little.
  void help();
  // For a communicator that makes no call: receives failures that others report, and notices that a
  // neighbour's process has ended.
  void look_for_failure();

  // From now on looks after what is on the device's streams, too. Once.
  void watch(StreamCalls& on_streams);

  // All pending calls fail; so do later ones. Any thread. The first failure stays. `own_part` is
  // what this rank adds to it and others are not told.
  void fail(const Error& error, const std::string& own_part = {});
  Status failure() const;
  // No call is pending.
  bool idle() const { return pending_.load() == 0; }
  // Any thread. Neither waits for the thread that drives nor asks the device.
  trace::Record record() const;
  // The same, after a look at what is on streams.
  trace::Record look_and_record() {
    look_at_launched();
    return record();
  }
  std::size_t record_bytes() const { return log_.memory_bytes(); }
  // Holds the progress lock while alive, so that nothing moves.
  class Pause;

  std::int64_t now_ns() const { return world_.now_ns(); }
  sys::World& world() const { return world_; }

 private:
  // Looking at the clock costs some 25 ns; every 64th idle poll is often enough.
  static constexpr std::int64_t rounds_between_looks = 64;

  bool try_lock_progress() { return !progress_lock_.exchange(true, std::memory_order_acquire); }
  void unlock_progress() { progress_lock_.store(false, std::memory_order_release); }

  // Starts and polls. True: the call is complete, and the lock given up. False: it must wait, or
  // came to `status`.
  bool try_in_turn(PreparedCall& call, Status& status);
  // Gives up the lock, and makes a task of what ran with it.
  Status wait_after_inline(PreparedCall& call, const Status& status);
  // Polls a call that its first poll did not complete. Returns whether it is complete.
  bool spin_inline(PreparedCall& call, Status& status);
  // Says what ends the wait. Messages through shared memory wake no thread: a rank with a core of
  // its own that slept while waiting for one would be late by some 70 us.
  WokenBy woken_by(const engine::Execution& execution) const;
  // The same of all that runs; with the lock.
  WokenBy woken_by() const;
  // Whether a neighbour that it waits for has not come to the call and does not rest.
  bool awaits_absent(const PreparedCall& call) const;
  // Oversubscribed: yields, unless the ranks that the call waits for run on other cores.
  void give_way(const engine::Execution& execution, int spins);
  // A round where the lock is free; sleeps a little, as `backoff` says, where nothing moves.
  void advance(Backoff& backoff);
  // With the lock: polls everything once. Whether anything moved.
  bool round();
  bool try_round();
  void fail_for_memory();
  bool poll_collective();
  bool poll_messages();
  Status enqueue(Task& task);
  // False: it did not start, and the task must not be polled: an execution that stands in the
  // middle of starting may look complete. The group has failed, or asks why its peer is gone.
  bool start(Task& task);
  // A call that does not run at once begins, or has ended.
  void count_call(int change);
  // Polls one running task; whether it moved.
  bool poll(Task& task);
  void finish(Task& task, std::shared_ptr<const Error> error);
  // Where the lock is free: notices what is over on streams.
  void look_at_launched();
  // A call in host memory has ended, at once or as a task: where its time went.
  void count_times(trace::Entry& entry, const engine::Execution& execution,
                   std::int64_t connecting_before_ns) {
    entry.reducing_ns = entry.bytes < engine::least_measured_bytes
                            ? 0
                            : std::min(execution.reducing_ns(), entry.ended_ns - entry.started_ns);
    connecting_seen_ns_ = connections_.connecting_ns();
    entry.connecting_ns = connecting_seen_ns_ - connecting_before_ns;
  }
  // Now and then while nothing moves: deadlines, the living of peers, what others tell.
  void poll_peers();
  bool has_overdue_call(std::int64_t now);
  // Brings awaited_ up to date.
  void look_at_waits(std::int64_t now);
  void check_peers();
  void listen(std::int64_t now);
  void look_at_device();
  void look_at_device_peers(std::int64_t now);
  // Whether the call that has waited long is another one on a rank that it waits for, or on a
  // neighbour. Then it has failed.
  bool compare_calls(std::int64_t now);
  // Watches the peers whose connections are waited for.
  void watch_peers(std::int64_t now);
  // A neighbour or a connection told of a failure: the same as the control plane tells it, with
  // more words, if it does.
  void fail_as_told(const Error& told);
  // A peer is to blame, as far as this rank saw. It may only have followed another in giving up.
  void suspect(const Error& error);
  // A call cannot end, for `seen` or for its deadline or because others say so: asks with the
  // others whom to blame. Until they agree nothing moves.
  void begin_inquest(bool is_timeout, const Error* seen);
  void go_on_with_inquest();
  void fail_pending(const std::shared_ptr<const Error>& error);
  void close_record(const Error& error);
  // An error, if a rank of this node is known to be in another call: calls that do not match wait
  // for messages that never come, or for a rank that has left.
  std::optional<Error> mismatch() const;
  // The call that waits for others; null: none.
  const Task* first_open() const;
  // "; rank 0 aborted call 3 (...) of communicator 7 while it waited for ...". With the lock.
  std::string own_part();
  std::shared_ptr<const Error> failure_pointer() const;
  void run_progress_thread();
  // A thread that waited for a call does no longer, and leaves what is pending to another.
  void stop_waiting();
  // And wakes it. Without it calls that nobody waits for would never end: then all fail.
  void start_progress_thread();
  // It runs no more after this, or after `patience` at the latest.
  void stop_progress_thread(std::chrono::milliseconds patience);

  Options options_;
  sys::World& world_;
  Connections& connections_;
  std::atomic<StreamCalls*> on_streams_{nullptr};
  StatusPage& status_page_;
  ControlGroup& group_;
  CallLog log_;

  std::atomic<bool> progress_lock_{false};
  // Sequentially consistent, both: a thread that leaves wait() and one that submits must not both
  // think that the other takes care of what is pending.
  std::atomic<int> pending_{0};  // calls not done
  std::atomic<int> waiters_{0};  // threads inside run() or wait()
  std::atomic<bool> failed_{false};

  SpinChoice spin_;
  // With the lock only.
  sys::CallClock clock_;
  std::int64_t connecting_seen_ns_ = 0;  // by calls that have ended
  Task* current_ = nullptr;              // the collective that runs
  std::vector<Task*> messages_;          // groups of messages that run
  bool has_closed_ = false;
  std::int64_t idle_rounds_ = 0;
  std::int64_t last_peer_check_ns_ = 0;
  std::int64_t last_listened_ns_ = 0;
  // What running calls wait for of other ranks, and since when, as far as looks tell.
  struct Awaited {
    trace::Waiting waiting;
    std::int64_t since_ns;
    std::int64_t timeout_ns;  // of the call
    CallWait call;
    bool operator==(const Awaited&) const = default;
  };
  std::vector<Awaited> awaited_;
  std::optional<Inquest> inquest_;  // while ranks agree on whom to blame
  // Peers whose processes had ended at the last look, with no connection to them made.
  std::vector<int> unreachable_;
  std::vector<int> unreachable_before_;
  std::int64_t device_peer_left_ns_ = 0;  // since when; 0: none has

  mutable std::mutex queue_mutex_;
  std::deque<Task*> queued_in_order_;
  std::deque<Task*> queued_messages_;
  std::atomic<bool> has_queued_{false};

  mutable std::mutex failure_mutex_;
  std::shared_ptr<const Error> failure_;
  std::int64_t failed_ns_ = 0;

  std::mutex thread_mutex_;
  std::unique_ptr<sys::Condition> thread_wake_;
  std::unique_ptr<sys::Thread> thread_;
  bool stopping_ = false;
  bool has_stopped_ = false;
  std::optional<sys::AtExit> at_exit_;
};

class Scheduler::Pause {
 public:
  explicit Pause(Scheduler& scheduler);
  ~Pause() { scheduler_.unlock_progress(); }
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;

 private:
  Scheduler& scheduler_;
};

}  // namespace unisono::comm
