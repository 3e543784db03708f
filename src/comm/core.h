// The inside of a Communicator.
#pragma once

#include <unistd.h>

#include <unisono/communicator.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "comm/bootstrap/job.h"
#include "comm/device/connections.h"
#include "comm/device/signals.h"
#include "comm/device/staging.h"
#include "comm/dump.h"
#include "comm/run/board.h"
#include "comm/run/calls.h"
#include "comm/run/connections.h"
#include "comm/run/point_to_point.h"
#include "comm/run/scheduler.h"
#include "comm/run/task.h"
#include "comm/select/plans.h"
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
  std::vector<int> world_ranks;
  std::int64_t timeout_ns = 0;
  bool checks_calls = false;
  std::uint64_t splits = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> shrinks;  // made so far, by who stayed
  // Of collectives, and of the messages of one call to or from one peer.
  std::atomic<std::uint64_t> next_sequence{0};
  std::atomic<std::uint64_t> next_messages{0};
  std::atomic<bool> destroyed{false};
  std::atomic<bool> suspended{false};
  const std::uint32_t forks = sys::fork_count();
  const pid_t process = getpid();

  std::unique_ptr<comm::Connections> connections;
  comm::Plans::Make make_on_host;
  std::unique_ptr<comm::Plans> plans;
  std::unique_ptr<comm::Board> board;
  std::unique_ptr<comm::PointToPoint> point_to_point;
  // Null: nobody has asked for them, or `no_signals` says why not.
  std::unique_ptr<comm::Signals> signals;
  std::optional<Error> no_signals;
  std::unique_ptr<comm::Scheduler> scheduler;
  std::unique_ptr<comm::Watch> watch;
  mutable std::mutex dump_mutex;
  mutable std::atomic<bool> has_file{false};
  mutable std::atomic<bool> may_dump{true};

  // The short way of run(): false if the call must take the long one, which also tells what is
  // wrong with it.
  bool run_at_once(const Call& call, Status& outcome);
  // The shortest way: false unless the last call of this collective was the same, with the same
  // buffers. What it needs of a Call, which takes longer to make than all of this.
  struct Repeat {
    Collective collective;
    const void* input;
    void* output;
    std::int64_t count;
    DataType type;
    ReduceOperation operation;
    int root;
    const CallOptions& options;
  };
  bool run_again(const Repeat& call, Status& outcome);
  bool run_at_once(const Message& message, Status& outcome);
  // The connections of calls on streams; null before the first of these.
  comm::DeviceConnections* device() const { return device_.load(std::memory_order_acquire); }
  // Of calls on streams; null while there is no device.
  comm::Plans* device_plans() const { return device() != nullptr ? device_plans_.get() : nullptr; }
  // What decides the shape of a call's buffers.
  Result<plan::Header> shape_of(const Call& call);
  // Fills the task for a call: checks it, selects, finds or makes the execution.
  Status prepare(const Call& call, comm::Task& task);
  bool can_choose(const Call& call);
  Status prepare(std::span<const Message> messages, const MessageOptions& options,
                 comm::Task& task);
  // Usable at all: of this process, neither destroyed nor failed, on the device either.
  Status usable();
  // The same, but that it may be suspended.
  Status alive();
  trace::Owner owner() const;
  Result<Communicator> split(int color, int key);
  Result<Communicator> shrink(std::span<const int> excluded);
  Status register_plans(std::span<const std::string> plans, std::uint64_t min_bytes,
                        std::uint64_t max_bytes);
  Status refuse_call(std::string_view why);
  std::size_t plans_bytes();
  Result<Window> make_window(void* data, std::size_t bytes, bool is_on_device);
  Status put(const Window& window, const void* data, std::size_t bytes, int peer,
             std::size_t offset, int signal, const SignalOptions& options);
  Status signal(int peer, int number, const SignalOptions& options);
  Result<bool> try_take_signals(std::span<const SignalWait> waits);
  Status take_signals(std::span<const SignalWait> waits, const SignalOptions& options);
  Status suspend();
  Status resume();
  // Host memory of calls on streams that go through it.
  std::size_t staging_bytes() const;
  // Waits for all calls, then closes the connections.
  Status drain();

 private:
  // What the last call of a collective came to, for one that is like it but for its addresses.
  struct Ready {
    engine::Execution* execution = nullptr;
    // The call's: the arguments of a barrier differ.
    std::int64_t count = 0;
    int root = 0;
    CallOptions options;
    bool in_place = false;
    std::uint64_t input_bytes = 0;
    std::uint64_t output_bytes = 0;
    engine::Arguments arguments;
    trace::Entry entry;
    std::int64_t timeout_ns = 0;
    std::uint32_t kind = 0;  // of what is recorded
  };
  template <class AnyCall>
  static bool is_like(const Ready& ready, const AnyCall& call);
  // With the turn, which it gives up.
  void run_ready(Ready& ready, Status& outcome);
  // The scheduler's turn, unless the communicator was destroyed: whoever destroys it holds the seat
  // while connections close, so that what is seen with the turn stays so.
  bool take_turn();
  Status make_ready(const Call& call, Ready& ready);

  // Collective: all ranks make their first call on a stream together.
  Result<comm::DeviceConnections*> device_for(void* stream);
  Status make_device(int ordinal);
  // Of a device that is there: its plans, with those that were registered.
  Status make_plans_of_device(comm::DeviceConnections& connected);
  void wait_until_idle();
  // Of a put whose arguments are right.
  Status move(const Window::State& state, const void* data, std::size_t bytes, int peer,
              std::size_t offset, const SignalOptions& options);
  Result<comm::Signals*> signals_of_host();
  // Collective, a barrier, too: afterwards all ranks have signals, or none.
  Status make_signals(const comm::Job& of, comm::ControlGroup& members);
  Result<std::unique_ptr<comm::Plans>> make_device_plans(comm::DeviceConnections& connected);
  // Of a call on a stream: what can be told of its buffers and stream.
  Status check_device(const Call& call, const comm::DeviceConnections& device) const;
  // The engine that a call goes to, and its options where the communicator's are filled in.
  struct Means {
    comm::Plans* plans = nullptr;
    CallOptions options;
  };
  Result<Means> means_of(const Call& call);
  Status settle(std::optional<Policy>& policy, int& max_sms) const;
  Status select(const Call& call, comm::Task& task);
  Status prepare_on_stream(std::span<const Message> messages, const MessageOptions& options,
                           comm::Task& task);
  Status check_and_select(const Call& call, comm::Task& task);
  Status compare_calls(const comm::CallCard& mine);
  // Every rank's `bytes` to every rank, by the one call whose shape no rank can get wrong; gives
  // its sequence number.
  Result<std::uint64_t> exchange(const void* mine, void* all, std::size_t bytes);
  void stamp(comm::Task& task, std::int64_t timeout);

  std::mutex device_mutex_;  // of whoever makes what follows
  std::unique_ptr<comm::DeviceConnections> device_connections_;
  std::unique_ptr<comm::Staging> staging_;                 // where devices do not reach each other
  std::unique_ptr<comm::Plans> device_plans_;              // by kernels, or staged
  std::unique_ptr<comm::Plans> copy_plans_;                // by copy engines
  std::vector<comm::Registered> registered_;               // for a device that is made ready later
  std::atomic<comm::DeviceConnections*> device_{nullptr};  // release: once all is made
  // With the scheduler's turn: in host memory and on streams.
  std::uint32_t kinds_ = 0;
  std::array<Ready, collective_count> ready_;
  std::array<Ready, collective_count> device_ready_;
};

}  // namespace unisono
