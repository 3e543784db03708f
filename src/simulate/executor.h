// Runs the programs of ranks in simulated time: the events of thread blocks and messages.
//
// What a rank does next is the driver's to say: one program and no more, or the calls of a training
// step one after another. What has ended is forgotten, so memory grows with what runs at one time.
//
// A thread block goes through its steps as the engine does: it waits for the step's dependencies,
// for its message, works, waits for a slot, sends. Costs are those of machine.h. Whatever several
// thread blocks share (ports, links, cores) is taken in the order of simulated time. Messages of
// a connection arrive in order, so a message is found without a search; what is taken is freed.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "plan/walk.h"
#include "simulate/event_queue.h"
#include "simulate/link_use.h"
#include "simulate/machine.h"
#include "simulate/path.h"
#include "simulate/programs.h"
#include "simulate/progress.h"
#include "simulate/routes.h"
#include "simulate/step_sizes.h"
#include "simulate/timeline.h"

namespace unisono::simulate {

enum class NetworkModel : std::uint8_t {
  log_gops,    // ports carry one message after another
  flows,       // messages share links, max-min fairly
  alpha_beta,  // nothing is shared
};
inline constexpr int network_model_count = 3;
std::string_view name(NetworkModel model);

struct ExecutorOptions {
  NetworkModel model = NetworkModel::log_gops;
  // Every latency is longer by up to this part of it, drawn evenly; from the seed alone.
  double noise = 0;
  std::uint64_t seed = 1;
  bool explain = false;
  std::uint64_t max_events = std::uint64_t{1} << 36;
  // The run ends early, and its result `is_cut`, once the clock is past this time.
  Time last_time = INT64_MAX;
  // Both must outlive the executor.
  Timeline* timeline = nullptr;
  Progress* progress = nullptr;
};

// Where a simulated rank's ports are. Ports are numbered from 0.
struct Endpoint {
  std::uint32_t node_port = 0;
  std::uint32_t nic_port = 0;
  std::uint32_t core = 0;  // where ranks_share_core
  int node = 0;            // for the flows' routes
  int shown_rank = 0;      // in messages and time-lines
};

struct PortUse {
  Time sending = 0, receiving = 0;
  std::int64_t bytes_sent = 0;
};

struct ExecutorResult {
  Time finished = 0;        // the last rank
  Time first_finished = 0;  // the first one
  int last_rank = 0;
  std::int64_t messages = 0;
  std::int64_t steps = 0;
  std::int64_t bytes = 0;  // on wires
  std::uint64_t events = 0;
  bool is_cut = false;               // at ExecutorOptions::last_time; `finished` says nothing
  std::size_t pending_events = 0;    // most at one time
  std::size_t pending_messages = 0;  // most at one time
  std::size_t thread_blocks = 0;     // most at one time
  std::vector<PortUse> ports;
  std::vector<LinkUse> links;  // with flows, where uplinks are limited
  Path path;                   // with explain
  std::vector<Hop> hops;
};

// A call as its thread blocks see it.
struct Call {
  StepSizes sizes;
  Time launch = 0, launch_gap = 0, reduction_overhead = 0, copy_overhead = 0;
  double reduce_ps_per_byte = 0, copy_ps_per_byte = 0;
  bool pays_for_stores = false;  // of what is sent on as well
  double wire_factor = 1;
  std::uint32_t first_way = 0;  // in the executor's table
  std::string what{};           // in messages: "all_gather 3 of world"; may be empty
};

// What a rank began, and when it was done with it.
struct Ended {
  std::uint32_t endpoint = 0;
  std::uint64_t tag = 0;
  Time began = 0, at = 0;
  Path path;  // with explain
};

// What a rank begins: a program, or without `call` only time that passes.
struct Start {
  std::uint32_t endpoint = 0;
  std::uint64_t tag = 0;  // comes back in Ended
  Time at = 0;            // not before the clock
  std::shared_ptr<const Call> call{};
  std::uint64_t call_key = 0;  // the same on all ranks that take part, and no other call's
  WiredProgram program{};
  Time duration = 0;           // without a call
  const Path* path = nullptr;  // until `at`; nullptr: nothing has happened
  int line = 0;                // of the time-line, of its first thread block
  std::string_view shown{};    // the time-line's bar of a duration; empty: none
};

class Executor;

class Driver {
 public:
  virtual ~Driver() = default;
  // At time 0.
  virtual Status begin(Executor& executor) = 0;
  // At `what.at`.
  virtual Status ended(Executor& executor, const Ended& what) = 0;
};

class Executor {
 public:
  // The machine must outlive the executor.
  Executor(const Machine& machine, std::vector<Endpoint> endpoints, ExecutorOptions options);

  // Until nothing is left to do. Misuse with the cycle of who waits for whom if ranks deadlock.
  Result<ExecutorResult> run(Driver& driver);

  std::shared_ptr<const Call> make_call(Protocol protocol, const StepSizes& sizes,
                                        std::string what) const;
  // For drivers. The program's peers are endpoints.
  Status start(Start what);

 private:
  static constexpr std::uint32_t none = UINT32_MAX;
  // Marks a connection, in the key of an arrival, that no thread block receives from.
  static constexpr std::uint32_t unreceived = std::uint32_t{1} << 31;

  enum class Stage : std::uint8_t { begin, take, send, finish, ended };
  enum class Wait : std::uint8_t { nothing, message, slot, dependency, barrier };
  // In keys, above the number of whom it happens to: what happens first at equal times.
  enum class Kind : std::uint8_t { arrival, inject, thread_block, end };

  struct Thread {
    Thread() : cursor(no_steps) {}
    Thread(const plan::ThreadBlock& its_block, const Call& its_call)
        : cursor(its_block.body), block(&its_block), call(&its_call) {}
    plan::StepCursor cursor;
    const plan::ThreadBlock* block = nullptr;
    const Call* call = nullptr;
    Time time = 0;           // until when it is busy
    Time began = 0;          // its current step
    Time finished_at = 0;    // its last complete step; may lie ahead of the clock
    std::int64_t bytes = 0;  // of its current step, without flags
    std::int64_t tile = 0;
    std::int64_t tile_steps = 0;  // once the first tile is done
    std::uint32_t endpoint = 0;
    std::uint32_t instance = 0;
    std::uint32_t index = 0;  // in its program
    std::uint32_t in = none, out = none;
    std::uint32_t first_waiter = none;  // thread blocks that wait for its steps
    std::uint32_t next_waiter = none;
    Stage stage = Stage::begin;
    Wait wait = Wait::nothing;
  };

  struct Message {
    Time time = 0;  // when the last byte is there; once released, when the slot is free
    Time sent = 0;
    std::int64_t wire_bytes = 0;
    std::uint32_t next = none;
    std::uint32_t connection = none;
    bool arrived = false;  // a flow that has ended
    bool ready = false;    // to become a flow, once those before it have ended
  };
  // A connection's messages are a list: released by the receiver, taken, delivered, under way. The
  // first of each that follows, or none.
  struct Connection {
    std::uint32_t sender = none, receiver = none;  // thread blocks, until they have ended
    std::uint32_t from = 0, to = 0;                // endpoints
    std::uint32_t first = none, unreleased = none, untaken = none, undelivered = none;
    std::uint32_t last = none;
    std::uint32_t count = 0;
    std::uint32_t send_port = 0, recv_port = 0;
    std::uint32_t way = 0;
    int channel = 0;
    int sender_line = 0;  // of the time-line
    bool sender_waits = false;
    bool sender_ended = false, receiver_ended = false;
    std::uint32_t unstarted = none;  // with flows: the first message that is not one yet
    bool flows = false;              // one is under way
    std::uint64_t key = 0;           // tells its noise from others'
    Time last_arrival = 0;           // of a first byte
    Time last_complete = 0;          // of a last byte
    Time puts_arrived = 0;           // the last byte of what was put
    std::uint32_t sent = 0;          // messages, for their noise
  };

  // What a message costs on one kind of way.
  struct Way {
    Time latency = 0, send_overhead = 0, recv_overhead = 0, gap = 0;
    Time burst = 0;  // how far behind the clock a port may be: what it sends at once
    double port_ps_per_byte = 0, thread_ps_per_byte = 0, wire_ps_per_byte = 0;  // the slower one
    double receive_ps_per_byte = 0;  // of whole messages; 0: they are read while they come
    bool inter_node = false;
  };

  // A program, or a duration, that a rank has begun. Once ended, its place and its thread blocks'
  // serve the same rank again: the order of equal times then does not depend on other ranks.
  struct Instance {
    plan::RankProgram program;
    std::shared_ptr<const Call> call;
    std::uint64_t tag = 0;
    std::uint32_t endpoint = 0;
    std::uint32_t first_thread = 0, places = 0;
    std::uint32_t running = 0;
    std::uint32_t at_barrier = 0;
    int line = 0;
    Time began = 0, finished = 0;
    Path path;  // of a duration
  };

  struct ConnectionKey {
    std::uint64_t wire, call;
    bool operator==(const ConnectionKey&) const = default;
  };
  struct ConnectionHash {
    std::size_t operator()(const ConnectionKey& key) const {
      return (key.wire ^ (key.call << 1)) * 0x9e3779b97f4a7c15;
    }
  };

  // executor.cc
  void make_routes();
  Status run_events(Driver& driver);
  Status report();
  Status check_messages() const;
  void schedule(std::uint32_t thread, Time time, Stage stage);
  void happen(std::uint32_t thread, Time now);
  ExecutorResult result();

  // executor_programs.cc
  void make_ways(const ProtocolCosts& costs);
  std::uint32_t take_instance(std::uint32_t endpoint, std::uint32_t blocks);
  void connect(std::uint32_t thread, const Wire& wire, std::uint64_t call_key, int line);
  std::uint32_t connection_of(ConnectionKey key);
  void schedule_end(std::uint32_t instance);
  Status end(std::uint32_t instance, Driver& driver);
  Path path_of(const Instance& instance) const;
  bool disconnect(const Thread& thread);
  void free_if_unused(std::uint32_t connection);

  // executor_steps.cc
  void begin(std::uint32_t thread, Time now);
  void take(std::uint32_t thread, Time now);
  void send(std::uint32_t thread, Time now);
  void finish(std::uint32_t thread, Time at, Time now);
  bool next_tile(std::uint32_t thread, Time at);
  void wait_for(std::uint32_t thread, std::uint32_t message);
  bool dependencies_hold(std::uint32_t thread, Time now);
  bool pass_barrier(std::uint32_t thread, Time now);
  void put(std::uint32_t thread, Time now);
  void read_peers(std::uint32_t thread);
  void wake_waiters(Thread& done, std::uint32_t thread);
  bool core_is_busy(std::uint32_t thread, Time now, Stage stage);
  void hold_core(const Thread& thread, Time until);
  Time work(std::uint32_t thread, std::int64_t bytes);

  // executor_messages.cc
  bool get_slot(std::uint32_t thread, Time now);
  void free_first(Connection& connection);
  Time leave_port(std::uint32_t thread, Time now, std::int64_t wire_bytes);
  void launch(std::uint32_t thread, Time leaves, std::int64_t wire_bytes);
  void arrive(std::uint32_t connection, Time now);
  void inject(std::uint32_t message, Time now);
  void start_flow(std::uint32_t connection, Time now);
  void end_flow(std::uint32_t message, Time now);
  void deliver(std::uint32_t connection, Time now);
  void release(std::uint32_t connection, std::uint32_t receiver, Time at);
  std::uint32_t new_message(std::uint32_t connection, std::int64_t wire_bytes, Time sent);
  Time latency_of(std::uint32_t connection);

  // executor_deadlock.cc
  std::string explain_standstill() const;
  std::string describe_wait(std::uint32_t thread) const;
  std::uint32_t awaited_by(std::uint32_t thread) const;
  std::uint32_t standing_in(std::uint32_t endpoint) const;

  // By kind, endpoint and whom.
  static std::uint64_t key_of(Kind kind, std::uint32_t endpoint, std::uint32_t whom) {
    return (std::uint64_t{static_cast<std::uint8_t>(kind)} << 56) |
           (std::uint64_t{endpoint} << 32) | whom;
  }
  void charge(std::uint32_t thread, Share share, Time time) {
    if (options_.explain) paths_[thread].shares[static_cast<std::size_t>(share)] += time;
  }
  static std::int64_t beyond_first(std::int64_t bytes) { return bytes > 0 ? bytes - 1 : 0; }
  static std::int64_t wire_bytes(const Thread& thread);
  // Inside a node a thread block stores into the peer's memory itself, and stands while the links
  // on the way are full; between nodes the NIC does.
  bool stores_wait(const Way& way) const {
    return options_.model == NetworkModel::flows && !way.inter_node;
  }
  int line_of(const Thread& thread) const {
    return instances_[thread.instance].line + static_cast<int>(thread.index);
  }

  inline static const plan::Body no_steps{};

  const Machine& machine_;
  const std::vector<Endpoint> endpoints_;
  const ExecutorOptions options_;
  std::vector<Way> ways_;  // by protocol, then by way

  EventQueue queue_;
  std::vector<Instance> instances_;
  std::vector<std::vector<std::uint32_t>> free_instances_;  // by endpoint
  std::vector<Time> finished_;                              // by endpoint
  std::vector<Thread> threads_;
  std::vector<Connection> connections_;
  std::vector<std::uint32_t> free_connections_;
  std::unordered_map<ConnectionKey, std::uint32_t, ConnectionHash> half_connected_;
  std::vector<Message> messages_;
  std::uint32_t free_message_ = none;
  std::size_t live_messages_ = 0;
  std::vector<Time> send_free_, recv_free_;  // by port
  std::vector<Time> core_free_;              // by core
  std::vector<PortUse> ports_;
  std::unique_ptr<Routes> routes_;    // with flows
  std::vector<Path> paths_;           // by thread block, with explain
  std::vector<Path> finished_paths_;  // at finished_at
  std::vector<Path> message_paths_;   // by message
  std::vector<Hop> hops_;
  std::size_t running_ = 0;  // thread blocks
  ExecutorResult result_;
};

}  // namespace unisono::simulate
