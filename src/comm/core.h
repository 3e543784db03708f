// The inside of a Communicator.
#pragma once

#include <unistd.h>

#include <unisono/communicator.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "comm/control/members.h"
#include "comm/device/device_path.h"
#include "comm/device/signals.h"
#include "comm/dump.h"
#include "comm/job/job.h"
#include "comm/run/calls.h"
#include "comm/run/host_path.h"
#include "comm/run/prepared_call.h"
#include "comm/run/scheduler.h"
#include "comm/run/status_page.h"
#include "comm/run/task.h"
#include "comm/windows/window_service.h"
#include "sys/fork.h"

namespace unisono {

// Does not hold its communicator: the progress thread may drop the last reference to a call, and
// must not be the one that destroys the communicator, which joins that thread.
struct Work::State {
  comm::Task task;
};

struct Communicator::Core {
  // `group` is this communicator's control plane; its members are in the order of ranks.
  // In a job with devices, calls on streams are made ready at once.
  // `group_name` is for people: "world", "world/0.1".
  static Result<std::shared_ptr<Core>> make(std::shared_ptr<comm::Job> job,
                                            std::unique_ptr<comm::ControlGroup> group,
                                            std::string group_name);
  ~Core();

  // Whether this process was forked from the one that made it. Then it is dead here: calls are
  // misuse, and it is never destroyed, for it would tell the peers that the parent has left, change
  // what lies in shared memory, and join threads that this process does not have.
  bool is_forked() const { return forks != sys::fork_count(); }
  Status check_process() const;

  std::shared_ptr<comm::Job> job;
  std::unique_ptr<comm::ControlGroup> group;
  std::string group_name;
  std::uint64_t id = 0;
  std::uint32_t epoch = 0;
  int rank = 0;
  int size = 1;
  std::shared_ptr<const comm::Members> member_list;
  const std::vector<int>& world_ranks() const { return member_list->ranks(); }
  std::int64_t timeout_ns = 0;
  bool checks_calls = false;
  std::uint64_t splits = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> shrinks;  // made so far, by who stayed
  // The numbers of the next collective, and of the next call's messages to or from one peer.
  std::atomic<std::uint64_t> next_sequence{0};
  std::atomic<std::uint64_t> next_messages{0};
  std::atomic<bool> destroyed{false};
  std::atomic<bool> suspended{false};
  const std::uint32_t forks = sys::fork_count();
  const pid_t process = getpid();

  std::unique_ptr<comm::HostPath> host;
  std::unique_ptr<comm::StatusPage> status_page;
  // Null: nobody has asked for them, or `no_signals` says why not.
  std::unique_ptr<comm::Signals> signals;
  std::optional<Error> no_signals;
  // From the first window of host memory on that ranks of several hosts make.
  std::shared_ptr<comm::WindowService> window_service;
  // Both, for threads that do not make windows; release, once all is made.
  std::atomic<comm::Signals*> signals_made{nullptr};
  std::atomic<comm::WindowService*> service_made{nullptr};
  std::uint32_t windows = 0;  // made so far, of all kinds
  std::unique_ptr<comm::Scheduler> scheduler;
  std::unique_ptr<comm::Watch> watch;
  mutable std::mutex dump_mutex;
  mutable std::atomic<bool> has_file{false};
  mutable std::atomic<bool> may_dump{true};
  mutable std::atomic<std::int64_t> dumped_ns{0};  // when the record was last written; 0: never
  std::uint64_t dumps_asked = 0;                   // by peers, at the last look

  // Runs the call to its end: at once, on what was prepared for the last one like it or is prepared
  // now, or else as a task, which also tells what is wrong with it.
  Status run(const comm::CallView& call) {
    Status outcome;
    if (!try_run_inline(call, outcome)) [[unlikely]]
      outcome = run_as_task(call);
    return outcome;
  }
  // Runs the message at once; false if it must go as a task.
  bool try_run_inline(const Message& message, Status& outcome);
  // The path of calls on streams; null before the first of these.
  comm::DevicePath* device() const { return device_.load(std::memory_order_acquire); }
  // What decides the shape of a call's buffers.
  Result<plan::Header> shape_of(const comm::CallView& call);
  // Fills the task for a call: checks it, selects, finds or makes the execution.
  Status prepare(const comm::CallView& call, comm::Task& task);
  bool can_choose(const comm::CallView& call);
  Status prepare(std::span<const Message> messages, const CallOptions& options, comm::Task& task);
  // Usable at all: of this process, neither destroyed nor failed, on the device either.
  Status usable();
  // The same, but that it may be suspended.
  Status alive();
  trace::Owner owner() const;
  // A simulated world has one clock.
  trace::ClockAnchor clock() const;
  Result<Communicator> split(int color, int key);
  Result<Communicator> shrink(std::span<const int> excluded);
  Status register_plans(std::span<const std::string> plans, std::uint64_t min_bytes,
                        std::uint64_t max_bytes);
  Status refuse_call(std::string_view why);
  Result<Window> make_window(void* data, std::size_t bytes, bool is_on_device);
  Status put(const Window& window, const void* data, std::size_t bytes, int peer,
             std::size_t offset, int signal, const SignalOptions& options);
  Status get(const Window& window, void* data, std::size_t bytes, int peer, std::size_t offset,
             const AccessOptions& options);
  Result<std::uint64_t> change_word(const Window& window, WordOperation operation,
                                    std::uint64_t operand, std::uint64_t expected, int peer,
                                    std::size_t offset, const AccessOptions& options);
  Status flush(int peer, const AccessOptions& options);
  Status signal(int peer, int number, const SignalOptions& options);
  Result<bool> test_signals(std::span<const SignalWait> waits);
  Status wait_signals(std::span<const SignalWait> waits, const SignalOptions& options);
  Status suspend();
  Status resume();
  // Waits for all calls, then closes the connections.
  Status drain();

 private:
  // The thread that destroys the communicator holds the progress lock while connections close, so
  // that state read under the lock stays valid.
  bool try_begin_inline();
  bool try_run_inline(const comm::CallView& call, Status& outcome);
  Status run_as_task(const comm::CallView& call);
  Status prepare_for_repeats(const comm::CallView& call, comm::CallPath& path,
                             comm::PreparedCollective& prepared);
  void set_own(const CallOptions& options, comm::PreparedCall& call) const;

  // Collective: all ranks make their first call on a stream together.
  Result<comm::DevicePath*> device_for(void* stream);
  Result<comm::CallPath*> path_for(const std::optional<void*>& stream);
  Status make_device(int ordinal);
  void wait_until_idle();
  // Checks what every access to a window needs.
  Status check_access(const Window& window, int peer, std::size_t offset, std::size_t bytes,
                      std::string_view what);
  // Makes a put whose arguments have been checked.
  Status move(const Window::State& state, const void* data, std::size_t bytes, int peer,
              std::size_t offset, const SignalOptions& options);
  Status put_afar(const Window::State& state, std::span<const std::byte> data, int peer,
                  std::size_t offset, int signal, std::int64_t limit_ns);
  Result<std::uint64_t> change_word_here(const Window::State& state, WordOperation operation,
                                         std::uint64_t operand, std::uint64_t expected, int peer,
                                         std::size_t offset);
  // Asks a rank of another host, and waits for the answer: the value before, of a word.
  Result<std::uint64_t> ask(int peer, const comm::WindowMessage& message, std::byte* destination,
                            std::int64_t limit_ns, std::string_view what);
  // Repeats step() until it says true, or until `until_ns`: then a timeout error says that this
  // rank has waited the whole limit for `what`. Fails where the communicator does, or the peer of
  // another host is gone.
  Status wait_for_peer(int peer, std::int64_t limit_ns, std::int64_t until_ns,
                       const std::string& what, const std::function<Result<bool>()>& step);
  std::int64_t limit_of(std::chrono::nanoseconds timeout) const {
    return timeout.count() > 0 ? timeout.count() : timeout_ns;
  }
  Result<comm::Signals*> signals_of_job();
  // For windows of host memory, on all ranks alike: what the window needs of this one.
  Status prepare_windows();
  // Collective, a barrier, too: afterwards all ranks have signals, or none.
  Status make_signals(const comm::Job& of, comm::ControlGroup& members);
  Status select(const comm::CallView& call, const plan::Header& shape, const comm::CallPath& path,
                bool in_place, comm::PreparedCall& prepared);
  Status check_and_select(const comm::CallView& call, comm::Task& task);
  Status compare_calls(const comm::CallCard& mine);
  // Every rank's `bytes` to every rank, by the one call whose shape no rank can get wrong; gives
  // its sequence number.
  Result<std::uint64_t> exchange(const void* mine, void* all, std::size_t bytes);
  void stamp(comm::Task& task);

  std::mutex device_mutex_;  // held to make what follows
  std::unique_ptr<comm::DevicePath> device_path_;
  std::vector<comm::Registered> registered_;        // for a device that is made ready later
  std::atomic<comm::DevicePath*> device_{nullptr};  // release: once all is made
  std::uint32_t kinds_ = 0;                         // with the scheduler's turn
};

}  // namespace unisono
