// A deterministic world: many processes on a virtual network, in one thread and in virtual time.
// Coroutines run in its loop, blocking code in fibers; a fiber's own work takes no time but for
// its looks at the clock.
//
// Every delay, refused connection, broken connection and random number comes from one seed, and
// events happen in the order of (time, number), so a run with the same seed and the same program is
// the same run, event for event: trace_hash() says so. A process that is killed loses its tasks,
// its connections and its listeners at once; the others see its connections end, as when a kernel
// closes them, or, if its host is lost, see nothing at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sys/shared_memory.h"
#include "sys/world.h"

namespace unisono::sys {

// What its processor spends on what a process sends and receives, one thing after the other.
struct ProcessCosts {
  std::int64_t connection_ns = 0;  // each end of a new connection, with its handshake
  std::int64_t message_ns = 0;     // each end of whatever is written at once
  double byte_ns = 0;              // and for each of its bytes
};

// What a process has sent and received so far.
struct Traffic {
  std::uint64_t bytes = 0;  // both ways
  int connections = 0;      // that it has now
  int most_connections = 0;
  int attempts = 0;  // to connect
};

struct SimulationOptions {
  std::uint64_t seed = 1;
  // Each thing sent takes a time drawn evenly from here; within a connection order is kept.
  std::int64_t min_delay_ns = 10'000;
  std::int64_t max_delay_ns = 1'000'000;
  double refuse_probability = 0;  // of each connection attempt
  double break_probability = 0;   // of each write: the connection is reset instead
  // A write waits while the reader has not taken as many bytes of earlier ones.
  std::size_t most_unread_bytes = SIZE_MAX;
  // A fiber that yields or wakes up goes on after a time drawn evenly from here.
  std::int64_t min_turn_ns = 100;
  std::int64_t max_turn_ns = 3'000;
  ProcessCosts costs;
  // Its processes of one host load and store each other's memory, as the threads of a process do.
  bool hosts_share_memory = false;
};

enum class Death { process, host };  // connections end; or the host goes silent

class SimulatedWorld;

class Simulation {
 public:
  explicit Simulation(SimulationOptions options);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  // Processes count from 0. Several may share a host.
  int add_process(const std::string& host);
  World& world(int process);
  void start(int process, Task<void> task);
  // The same of blocking code.
  void start(int process, std::function<void()> run);
  bool is_alive(int process) const;
  // Nothing gets through between the two until then; no_deadline_ns: never again.
  void cut(int process, int other, std::int64_t until_ns);
  std::int64_t cut_until_ns(int process, int other) const;
  // The process is stopped until then: its threads do not run, and what is sent to it waits.
  void stop(int process, std::int64_t until_ns);
  // For what else a simulated world is made of, such as a network's transport: an event, a draw
  // from the seed, and a mark in trace_hash().
  void at(std::int64_t time_ns, std::function<void()> happen) {
    schedule(time_ns, std::move(happen));
  }
  std::uint64_t random() { return random_(); }
  void note(std::uint64_t what);
  // Ends the sleeps of a process that wait for an event.
  void wake(int process);
  // Told each time that a living process asks something of its world, as "control.write" or
  // "thread.sleep"; others that stand for a part of the world tell theirs by reach(). What it has
  // done to a process by the calls above, with the time that it is, has happened when it returns.
  void watch(std::function<void(int process, std::string_view place)> watcher) {
    watcher_ = std::move(watcher);
  }
  void reach(int process, std::string_view place);
  // Takes the processor from the fiber that runs, if it is one of the process's, for a while in
  // which others run. Where no mutex is held.
  void interrupt(int process);
  void kill(int process, Death death);
  // Streams and listeners of living processes that have not been closed, and fibers that have not
  // ended.
  std::size_t open_streams() const;
  std::size_t open_listeners() const;
  std::size_t running_threads() const;
  const Traffic& traffic(int process) const;

  // Runs until the tasks of all living processes have ended (true), or until nothing more can
  // happen or virtual time reaches `until_ns` (false).
  bool run(std::int64_t until_ns);

  std::int64_t now_ns() const { return now_ns_; }
  std::uint64_t trace_hash() const { return trace_hash_; }
  std::uint64_t events() const { return last_event_; }
  // Whether nothing waits any more: no task of any process, finished or killed, has left a wait.
  bool is_quiet() const;

 private:
  friend class SimulatedWorld;
  friend class SimulatedStream;
  friend class SimulatedListener;
  friend class SimulatedCondition;
  friend class SimulatedThread;

  void schedule(std::int64_t time_ns, std::function<void()> happen);
  std::int64_t after_delay(std::int64_t from_ns);
  std::int64_t turn_ns();
  bool draw(double probability);
  Task<void> counted(SimulatedWorld& world, Task<void> task);
  struct Event {
    std::int64_t time_ns;
    std::uint64_t number;
    std::function<void()> happen;
    bool operator>(const Event& other) const {
      return std::pair(time_ns, number) > std::pair(other.time_ns, other.number);
    }
  };
  Event take_first();
  class Strand;
  friend class Strand;
  Strand& spawn(SimulatedWorld& world, std::function<void()> run);
  void run_strands();
  // The fiber waits, for the queue (if there is one) or the time. Whether it was notified.
  bool park(WaitQueue* queue, std::int64_t deadline_ns);
  // Wakes the strand each time that what it waits for is there.
  Task<void> wake_each_time(Strand& strand);

  const SimulationOptions options_;
  std::mt19937_64 random_;
  Scheduler scheduler_;
  std::int64_t now_ns_ = 0;
  std::uint64_t last_event_ = 0;
  std::uint64_t last_connection_ = 0;
  std::uint64_t trace_hash_ = 0xcbf29ce484222325;
  std::map<std::string, class SimulatedListener*> listeners_;  // by address
  std::set<std::string> lost_addresses_;                       // of hosts that do not answer
  std::map<std::string, std::string> files_;
  // By host and name.
  std::map<std::pair<std::string, std::string>, std::shared_ptr<PrivateMemory>> shared_memory_;
  // Memory that processes name to others, by its address there. The numbers are those of the order
  // in which it was named, so that they are the same in each run.
  struct NamedMemory {
    std::int32_t pid = 0;
    std::span<std::byte> bytes;
  };
  std::byte* find_memory(std::int32_t pid, std::uint64_t address, std::size_t bytes) const;
  std::map<std::uint64_t, NamedMemory> named_memory_;
  std::uint64_t next_address_ = std::uint64_t{1} << 32;
  std::vector<Event> events_;  // a heap, the next one at its front
  std::map<std::pair<int, int>, std::int64_t> cut_until_ns_;
  int running_ = 0;  // started tasks of living processes that have not ended
  std::vector<std::unique_ptr<SimulatedWorld>> worlds_;
  std::deque<std::unique_ptr<Strand>> strands_;  // by the order in which they began
  std::deque<Strand*> ready_strands_;
  Strand* current_ = nullptr;  // the one that runs
  std::function<void(int process, std::string_view place)> watcher_;
};

}  // namespace unisono::sys
