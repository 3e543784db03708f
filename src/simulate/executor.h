// Runs the programs of all ranks in simulated time: the events of thread blocks and messages.
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
#include "simulate/machine.h"
#include "simulate/path.h"
#include "simulate/programs.h"
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
  Timeline* timeline = nullptr;  // must outlive the executor
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
  std::size_t pending_events = 0;    // most at one time
  std::size_t pending_messages = 0;  // most at one time
  std::vector<PortUse> ports;
  Path path;  // with explain
  std::vector<Hop> hops;
};

class Executor {
 public:
  // The machine and the programs must outlive the executor.
  Executor(const Machine& machine, std::vector<Endpoint> endpoints, ExecutorOptions options);

  // All ranks start at time 0 and run to the end. Misuse with the cycle of who waits for whom if
  // they stand still.
  Result<ExecutorResult> run(const plan::Header& header, const StepSizes& sizes,
                             Programs& programs);

 private:
  static constexpr std::uint32_t none = UINT32_MAX;
  // Marks a connection, in the key of an arrival, that no thread block receives from.
  static constexpr std::uint32_t unreceived = std::uint32_t{1} << 31;

  enum class Stage : std::uint8_t { begin, take, send, finish, ended };
  enum class Wait : std::uint8_t { nothing, message, slot, dependency, barrier };
  // In keys, above the number of whom it happens to: what happens first at equal times.
  enum class Kind : std::uint8_t { arrival, inject, thread_block };

  struct Thread {
    Thread(const plan::ThreadBlock& its_block, std::uint32_t its_rank, std::uint32_t its_index)
        : cursor(its_block.body), block(&its_block), rank(its_rank), index(its_index) {}
    plan::StepCursor cursor;
    const plan::ThreadBlock* block;
    Time time = 0;           // until when it is busy
    Time began = 0;          // its current step
    Time finished_at = 0;    // its last complete step; may lie ahead of the clock
    std::int64_t bytes = 0;  // of its current step, without flags
    std::int64_t tile = 0;
    std::int64_t tile_steps = 0;  // once the first tile is done
    std::uint32_t rank;
    std::uint32_t index;  // in its rank
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
  };
  // A connection's messages are a list: released by the receiver, taken, delivered, under way. The
  // first of each that follows, or none.
  struct Connection {
    std::uint32_t sender = none, receiver = none;  // thread blocks
    std::uint32_t first = none, unreleased = none, untaken = none, undelivered = none;
    std::uint32_t last = none;
    std::uint32_t count = 0;
    std::uint32_t send_port = 0, recv_port = 0;
    std::uint32_t way = 0;
    bool sender_waits = false;
    Time last_arrival = 0;   // of a first byte
    Time last_complete = 0;  // of a last byte
    Time puts_arrived = 0;   // the last byte of what was put
    std::uint32_t sent = 0;  // messages, for their noise
  };

  // What a message costs on one kind of way.
  struct Way {
    Time latency = 0, send_overhead = 0, recv_overhead = 0, gap = 0;
    double port_ps_per_byte = 0, thread_ps_per_byte = 0, wire_ps_per_byte = 0;  // the slower one
    bool inter_node = false;
  };

  struct Rank {
    plan::RankProgram program;
    std::uint32_t first_thread = 0;
    std::uint32_t running = 0;
    std::uint32_t at_barrier = 0;
    Time finished = 0;
  };

  // executor.cc
  void make_ways(Protocol protocol);
  void make_routes();
  Status start_rank(std::uint32_t rank, Programs& programs);
  std::uint32_t connection_of(std::uint64_t key);
  Status run_events();
  void schedule(std::uint32_t thread, Time time, Stage stage);
  void happen(std::uint32_t thread, Time now);
  ExecutorResult result();

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
  void end_flow(std::uint32_t message, Time now);
  void deliver(std::uint32_t connection, Time now);
  void release(std::uint32_t connection, std::uint32_t receiver, Time at);
  std::uint32_t new_message(std::uint32_t connection, std::int64_t wire_bytes, Time sent);
  Time latency_of(std::uint32_t connection);

  // executor_deadlock.cc
  std::string explain_standstill() const;
  std::string describe_wait(std::uint32_t thread) const;
  std::uint32_t awaited_by(std::uint32_t thread) const;

  static std::uint64_t key_of(Kind kind, std::uint32_t whom) {
    return (std::uint64_t{static_cast<std::uint8_t>(kind)} << 32) | whom;
  }
  void charge(std::uint32_t thread, Share share, Time time) {
    if (options_.explain) paths_[thread].shares[static_cast<std::size_t>(share)] += time;
  }
  static std::int64_t beyond_first(std::int64_t bytes) { return bytes > 0 ? bytes - 1 : 0; }
  std::int64_t wire_bytes(std::int64_t bytes) const;

  const Machine& machine_;
  const std::vector<Endpoint> endpoints_;
  const ExecutorOptions options_;
  StepSizes sizes_;
  double wire_factor_ = 1;
  double reduce_ps_per_byte_ = 0, copy_ps_per_byte_ = 0;
  Time launch_ = 0;
  std::vector<Way> ways_;

  EventQueue queue_;
  std::vector<Rank> ranks_;
  std::vector<Thread> threads_;
  std::vector<Connection> connections_;
  std::unordered_map<std::uint64_t, std::uint32_t> half_connected_;  // by key
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
