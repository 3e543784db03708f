// Communicators: ranks that exchange data in collectives and point to point, in CPU memory or in
// that of CUDA devices.
//
// Every rank of a communicator makes the same calls in the same order. Calls named *_async (and
// submit) return at once; others return when this rank's part is complete, that is, when its
// output is there and its buffers may be used again. Calls of one communicator run in their order;
// point-to-point calls overlap with collectives and keep their order for each peer and direction.
//
// Device memory: a call that is given a CUDA stream works on device memory and is enqueued on that
// stream. It is complete, as far as run() and Work say, when it is on the stream; its data are
// there when the stream has come so far. It can be captured into a CUDA graph from the second call
// of its kind on. Calls on different streams still follow each other; graphs that hold calls must
// be ordered with other calls of their communicator by the program that launches them. Each rank
// has one device. A failure() and later calls report a failure on the device.
//
// Threads: a communicator may be used from several threads if they agree on the order of calls.
// Different communicators are independent. abort() may be called from any thread at any time.
//
// Failure: an error of kind `misuse` leaves the communicator usable and nothing started. Any other
// error, and a timeout, is final: every later call returns it, and the peers learn which rank is to
// blame.
#pragma once

#include <unisono/call_options.h>
#include <unisono/explanation.h>
#include <unisono/result.h>
#include <unisono/settings.h>
#include <unisono/types.h>
#include <unisono/window.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace unisono {

// How to join a job. Whatever is left at its default is taken from the settings (UNISONO_*), then
// from what torchrun, mpiexec (PMI) or srun tell each process; a process that has none of these is
// a world of one rank. See docs/how-to/start.md.
struct InitOptions {
  int rank = -1;
  int world_size = -1;
  std::string rendezvous;  // "tcp://host:port", "file:///path"
  std::string secret;
  std::string node;  // ranks with one node name share memory
  std::string interface;
  std::string transport;                // a name of `unisono info`, or "" for what suits each pair
  std::chrono::nanoseconds timeout{0};  // of collectives; 0: UNISONO_TIMEOUT
  std::chrono::nanoseconds bootstrap_timeout{0};  // 0: UNISONO_BOOTSTRAP_TIMEOUT
  int device = -1;  // CUDA device of calls on streams; -1: that of the first such call's stream
  // The default for calls on streams, the same on all ranks; see CallOptions. Nothing and
  // 0: UNISONO_GPU_POLICY and UNISONO_GPU_MAX_SMS.
  std::optional<Policy> policy = std::nullopt;
  int max_sms = 0;
  bool has_signals = false;  // of this communicator and its children; see Communicator::signal
  // What a rank must have in addition to the job's secret; empty: nothing. The same on all ranks.
  std::string shared_key;
  // For this communicator and its children, instead of what the environment has. What a process has
  // one of (UNISONO_LOG, UNISONO_SIMD) is taken from the environment alone.
  SettingValues settings;
};

// One call. `count` is in elements: of each rank's contribution for all_gather and gather, of each
// rank's result for reduce_scatter and scatter, of each pair's block for all_to_all, else of the
// whole buffer. In place: see Aliasing in src/plan/plan.h; given by the pointers alone.
struct Call {
  Collective collective = Collective::all_reduce;
  const void* input = nullptr;  // may be nullptr where the rank has none (scatter, not the root)
  void* output = nullptr;
  std::int64_t count = 0;
  DataType type = DataType::float32;
  ReduceOperation operation = ReduceOperation::sum;
  int root = 0;
  // pre_multiplied_sum: this rank's scalar. Integers are multiplied by `integer_multiplier`.
  double multiplier = 1;
  std::int64_t integer_multiplier = 1;
  // all_to_all_v: elements for and from each rank, and where they start in input and output.
  std::span<const std::int64_t> send_counts, send_displacements;
  std::span<const std::int64_t> recv_counts, recv_displacements;
  CallOptions options;  // of a custom program, `algorithm` is its name
};

// A started call. Cheap to copy; all copies are one call. Dropping it does not cancel the call, but
// the buffers must live until the call is complete. When the last handle of a communicator and of
// its calls goes while calls run, its destructor waits for them.
class Work {
 public:
  struct State;
  Work() = default;
  Work(std::shared_ptr<State> state, std::shared_ptr<void> core)
      : core_(std::move(core)), state_(std::move(state)) {}

  bool valid() const { return state_ != nullptr; }
  // Whether it is complete or has failed.
  bool done() const;
  // Makes progress, then returns what done() would.
  bool test();
  // Waits for it, at most until its own deadline; then its outcome.
  Status wait();
  // Waits as wait() does, but gives up after `patience` with a timeout error that leaves the call
  // running.
  Status wait_for(std::chrono::nanoseconds patience);
  // The outcome of a complete call.
  Status status() const;
  // The call's number in its communicator.
  std::uint64_t sequence() const;
  // The sender of a complete receive from any_source; else -1.
  int source() const;

 private:
  std::shared_ptr<void> core_;  // the communicator's; a call that runs does not hold it by itself
  std::shared_ptr<State> state_;
};

// The peer of a receive that takes the first message to arrive from any rank. Alone in its
// group; of at least one byte; not from the own rank. A receive that names a peer and was started
// before has the better right to that peer's messages.
inline constexpr int any_source = -1;

// A message of a group. Messages with different tags do not match and may overtake each other;
// every tag that is used costs a connection.
struct Message {
  bool is_send = true;
  const void* send_data = nullptr;
  void* recv_data = nullptr;
  std::int64_t count = 0;
  DataType type = DataType::uint8;
  int peer = 0;
  int tag = 0;  // 0 to max_tag
};
inline constexpr int max_tag = (1 << 30) - 1;

struct ConnectionMemory {
  int peer = 0;
  int channel = 0;
  std::string transport;
  std::size_t bytes = 0;
};

struct MemoryReport {
  std::size_t total_bytes = 0;
  std::size_t scratch_bytes = 0;
  std::size_t plans_bytes = 0;
  std::size_t record_bytes = 0;
  std::size_t device_bytes = 0;  // of CUDA devices, connections included
  // The caller's device memory that was made known to other ranks, and theirs that is mapped here:
  // addresses, no memory of their own.
  std::size_t registered_bytes = 0;
  std::size_t mapped_bytes = 0;
  std::vector<ConnectionMemory> connections;
};

class Communicator {
 public:
  struct Core;

  // Collective: returns when all ranks have joined, or a timeout names those that have not.
  static Result<Communicator> init(const InitOptions& options = {});

  Communicator() = default;
  explicit Communicator(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  bool valid() const { return core_ != nullptr; }

  int rank() const;
  int size() const;
  int nodes() const;
  int node_of(int rank) const;
  bool is_on_one_host() const;
  std::uint64_t id() const;
  // Ranks of this communicator in the numbering of the one made by init.
  const std::vector<int>& world_ranks() const;

  Status run(const Call& call);
  Result<Work> submit(const Call& call);

  Status all_reduce(const void* input, void* output, std::int64_t count, DataType type,
                    ReduceOperation operation = ReduceOperation::sum,
                    const CallOptions& options = {});
  Status all_gather(const void* input, void* output, std::int64_t count, DataType type,
                    const CallOptions& options = {});
  Status reduce_scatter(const void* input, void* output, std::int64_t count, DataType type,
                        ReduceOperation operation = ReduceOperation::sum,
                        const CallOptions& options = {});
  Status broadcast(const void* input, void* output, std::int64_t count, DataType type, int root,
                   const CallOptions& options = {});
  Status reduce(const void* input, void* output, std::int64_t count, DataType type, int root,
                ReduceOperation operation = ReduceOperation::sum, const CallOptions& options = {});
  Status gather(const void* input, void* output, std::int64_t count, DataType type, int root,
                const CallOptions& options = {});
  Status scatter(const void* input, void* output, std::int64_t count, DataType type, int root,
                 const CallOptions& options = {});
  Status all_to_all(const void* input, void* output, std::int64_t count, DataType type,
                    const CallOptions& options = {});
  Status barrier(const CallOptions& options = {});

  Status send(const void* data, std::int64_t count, DataType type, int peer,
              const CallOptions& options = {});
  Status recv(void* data, std::int64_t count, DataType type, int peer,
              const CallOptions& options = {});
  // Starts all messages together; complete when all are. Sends and receives between two ranks match
  // in order; a send to the own rank needs a receive from it in the same group.
  Result<Work> submit(std::span<const Message> messages, const CallOptions& options = {});

  // A registered program whose collective is its own (Collective::custom), by its name. `count` is
  // the elements of one of the blocks that it has on every rank, custom_blocks(); input and output
  // are one memory where the program is called in place. The operation is sum, product, min or max.
  Status run_custom(std::string_view program, const void* input, void* output, std::int64_t count,
                    DataType type, ReduceOperation operation = ReduceOperation::sum,
                    const CallOptions& options = {});
  struct CustomBlocks {
    int input = 0;
    int output = 0;
  };
  // Blocks of a registered custom program's buffers; misuse that names the others if there is none.
  Result<CustomBlocks> custom_blocks(std::string_view program) const;

  // Collective over this communicator. Ranks that give one color form a new communicator, ordered
  // by key, then by rank here; a negative color joins none and yields an invalid Communicator.
  Result<Communicator> split(int color, int key);
  // Collective over the ranks that are not in `excluded`, which all name the same; the others do
  // not take part and may be dead. Works on a communicator that has failed or was aborted, too: the
  // new one starts afresh.
  Result<Communicator> shrink(std::span<const int> excluded);

  // Collective over this communicator. From now on these plans take the calls that they serve: of
  // their collective and root, of min_bytes to max_bytes (the larger of a rank's input and output).
  // Each rank may call in place or out of place: which plan runs never depends on it. A plan that
  // is in place where a call is not, or the reverse, runs on a copy of that rank's input. `plans`
  // are one text or JSON, or one in place and one out of place; if these two send different
  // messages, the one out of place takes all calls. Custom plans are called by name, see
  // run_custom(); that they are in order is proved, what comes out is theirs. Later registrations
  // take precedence. Misuse on every rank, and nothing registered, if one of them is wrong or ranks
  // give different ones; a rank that has none says so with an empty list.
  Status register_plans(std::span<const std::string> plans, std::uint64_t min_bytes = 0,
                        std::uint64_t max_bytes = UINT64_MAX);
  // Whether UNISONO_CHECK_CALLS compares the calls of all ranks before they run.
  bool compares_calls() const;
  // For a call that the caller cannot make, where UNISONO_CHECK_CALLS compares calls: sends `why`
  // to the other ranks, which would otherwise wait for the call. Misuse on all ranks. Without the
  // setting it does nothing.
  Status refuse_call(std::string_view why);

  // Makes device memory known to the other ranks, which map it, so that later calls are
  // zero-copy; an unregistered buffer is mapped after its first use. Local; waits until the
  // others have mapped it, at most a second: what is not mapped by then is later. Registered memory
  // is forgotten when it is freed. Nothing where memory is not shared (UNISONO_GPU_ZERO_COPY=0).
  // Misuse before the device of the communicator is known, or if it is not that device's memory;
  // an environment error if the driver cannot share it. Any thread.
  Status register_memory(const void* data, std::size_t bytes);

  // Collective over this communicator: every rank gives `bytes` of its memory, as many as it likes,
  // of its device or of the host on all ranks alike. The memory must live as long as anybody uses
  // the window; what other hosts' ranks do to it ends with this rank's last copy of the Window. All
  // ranks can signal each other from then on, too.
  Result<Window> make_window(void* data, std::size_t bytes, bool is_on_device = false);
  // Copies `bytes` to byte `offset` of the peer's part of the window, then signals it unless
  // `signal` is no_signal. The peer has no part in it. On a stream exactly for windows of device
  // memory. `data` may be changed afterwards. On the peer's host the bytes are there then; on
  // another host once a signal of this rank, an answer to get() or change_word(), or flush() has
  // come later. Misuse if it does not fit; an environment error if the peer is not reached: its
  // device memory is on another host, its memory cannot be shared, or its process has ended; that
  // error names the peer.
  Status put(const Window& window, const void* data, std::size_t bytes, int peer,
             std::size_t offset, int signal = no_signal, const SignalOptions& options = {});
  // Copies `bytes` at byte `offset` of the peer's part of the window to `data`. Windows of host
  // memory, here and below. Errors as put().
  Status get(const Window& window, void* data, std::size_t bytes, int peer, std::size_t offset,
             const AccessOptions& options = {});
  // Changes the 64-bit word at byte `offset`, and gives its value before. No other change_word() of
  // any rank comes between; a put does not count. Misuse if the word's address is no multiple of 8.
  Result<std::uint64_t> change_word(const Window& window, WordOperation operation,
                                    std::uint64_t operand, int peer, std::size_t offset,
                                    std::uint64_t expected = 0, const AccessOptions& options = {});
  // Waits until all that this rank has put to the peer is there.
  Status flush(int peer, const AccessOptions& options = {});
  // Needs a window, or InitOptions::has_signals, as what follows.
  Status signal(int peer, int signal, const SignalOptions& options = {});
  // Takes all that is waited for, if it is there. Whether it was. Host memory.
  Result<bool> test_signals(std::span<const SignalWait> waits);
  // Waits for all of it, or has the stream wait. A timeout names the first peer whose signals are
  // missing; that of a stream, the first peer.
  Status wait_signals(std::span<const SignalWait> waits, const SignalOptions& options = {});
  // Their names in earlier versions.
  Result<bool> try_take_signals(std::span<const SignalWait> waits) { return test_signals(waits); }
  Status take_signals(std::span<const SignalWait> waits, const SignalOptions& options = {}) {
    return wait_signals(waits, options);
  }

  // Collective over this communicator: waits for all calls, then gives back the device memory that
  // it has: connections and scratch. Until resume(), which is collective, too, calls are misuse. No
  // other call may be made at the same time; graphs that hold calls are of no use afterwards.
  Status suspend();
  Status resume();
  bool is_suspended() const;

  // Whether a call can be made with the algorithm and protocol that it names. The same on all ranks
  // where the call is.
  bool can_choose(const Call& call);

  // Which plan a call would take, by which path, and why; with this communicator's settings.
  Result<Explanation> explain(Collective collective, std::uint64_t bytes,
                              const ExplainOptions& options = {}) const;

  MemoryReport memory() const;
  // The record of this communicator's calls, as JSON.
  std::string dump_record() const;
  // Writes the record to the folder UNISONO_DUMP_DIRECTORY, and asks the peers to write theirs,
  // which takes them a tenth of a second where they can. Misuse without that setting; an
  // environment error where the file cannot be written.
  Status dump() const;

  // The CUDA device of calls on streams; -1 as long as it is not known.
  int device() const;
  // What made this communicator unusable, if it is; also what a kernel of it came to.
  Status failure() const;
  // Aborts all calls here and notifies the peers. Idempotent.
  void abort();
  // Waits for all calls, then frees everything. The handle and its copies stay valid to ask rank()
  // and size(); calls fail. Not collective.
  Status destroy();

 private:
  Status run_named(Collective collective, const void* input, void* output, std::int64_t count,
                   DataType type, ReduceOperation operation, int root, const CallOptions& options);

  std::shared_ptr<Core> core_;
};

}  // namespace unisono
