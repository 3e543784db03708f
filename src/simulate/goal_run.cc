#include "simulate/goal_run.h"

#include <algorithm>

#include "base/error.h"
#include "base/try.h"
#include "simulate/event_queue.h"
#include "simulate/goal_match.h"
#include "simulate/goal_standstill.h"
#include "simulate/wiring.h"

namespace unisono::simulate::goal {
namespace {

constexpr std::uint32_t none = UINT32_MAX;

class Runner {
 public:
  Runner(const Machine& machine, const Schedule& schedule, const topo::Placement& placement,
         const Options& options);
  Result<RunResult> run();

 private:
  // What costs are on one kind of way.
  struct Way {
    Time latency = 0, send_overhead = 0, recv_overhead = 0, gap = 0;
    double port_ps_per_byte = 0, cpu_ps_per_byte = 0;
  };
  // An operation that may begin, or a message at its receiver.
  struct Pending {
    std::uint32_t rank = 0;
    std::uint32_t operation = 0;  // of a message: of its sender
    std::uint32_t sender = none;  // of a message
    std::uint32_t next_free = none;
  };

  void add_way(std::size_t kind, double latency_ns, double gap_ns, double port_gb_s);
  const Way& way(std::uint32_t from, std::uint32_t to) const;
  std::uint32_t port(std::uint32_t rank, std::uint32_t peer, std::uint8_t nic) const;
  const Operation& operation(std::uint32_t rank, std::uint32_t number) const {
    return schedule_.ranks[rank].operations()[number];
  }
  Time& cpu_free(std::uint32_t rank, std::uint8_t cpu) {
    return cpu_free_[std::size_t{rank} * cpus_ + cpu];
  }

  void push(Time time, Pending what);
  void push_again(Time time, std::uint64_t key) { queue_.push({time, key}); }
  void happen(const Event& event);
  // False if it must be tried again, from `time` on.
  bool calculate(std::uint32_t rank, std::uint32_t number, Time now, Time& time);
  bool send(std::uint32_t rank, std::uint32_t number, Time now, Time& time);
  void receive(std::uint32_t rank, std::uint32_t number, Time now);
  bool arrive(const Pending& message, Time now, Time& time);
  void free_sender(std::uint32_t sender, std::uint32_t number, std::uint32_t receiver, Time now);
  void begun(std::uint32_t rank, std::uint32_t number, Time at);
  void ended(std::uint32_t rank, std::uint32_t number, Time at);
  void release(std::uint32_t rank, std::uint32_t number, Time ready);
  void push_freed();
  Status check_end() const;

  const Schedule& schedule_;
  const topo::Placement& placement_;
  const Machine& machine_;
  const Options& options_;
  std::vector<Endpoint> endpoints_;
  std::vector<Way> ways_;
  std::size_t cpus_ = 1, nics_ = 1;
  std::vector<Time> cpu_free_, send_free_, recv_free_;

  std::vector<std::vector<std::uint32_t>> waits_;  // by rank and operation
  std::vector<std::vector<Time>> ready_;           // the same: when what it requires has ended
  Progress progress_;
  Matcher posted_, unexpected_;

  EventQueue queue_;
  std::vector<Pending> pending_;
  std::uint32_t free_pending_ = none;
  std::uint64_t sequence_ = 0;
  std::vector<Pending> freed_;  // by what happens now
  RunResult result_;
};

std::vector<bool> wildcards_of(const Schedule& schedule) {
  std::vector<bool> result;
  for (const Rank& rank : schedule.ranks) {
    const auto operations = rank.operations();
    result.push_back(std::any_of(operations.begin(), operations.end(), [](const Operation& one) {
      return one.kind == Kind::recv && (one.peer == any || one.tag == any);
    }));
  }
  return result;
}

// A pending event's place in the low bits of its key, its age above: 2^36 events, 2^28 at a time.
constexpr int place_bits = 28;
constexpr std::uint64_t place_mask = (std::uint64_t{1} << place_bits) - 1;

Runner::Runner(const Machine& machine, const Schedule& schedule, const topo::Placement& placement,
               const Options& options)
    : schedule_(schedule),
      placement_(placement),
      machine_(machine),
      options_(options),
      endpoints_(endpoints_of(machine, placement)),
      posted_(wildcards_of(schedule)),
      unexpected_(wildcards_of(schedule)) {
  add_way(0, machine.node_latency_ns, machine.node_gap_ns, machine.node_gb_s);
  for (const Level& level : machine.levels)
    add_way(1, level.latency_ns, machine.nic_gap_ns, machine.nic_gb_s);
  for (const Rank& rank : schedule.ranks) {
    for (const Operation& one : rank.operations()) {
      cpus_ = std::max(cpus_, std::size_t{one.cpu} + 1);
      nics_ = std::max(nics_, std::size_t{one.nic} + 1);
    }
    waits_.push_back(rank.requirement_counts());
    ready_.emplace_back(rank.operations().size());
    progress_.emplace_back(rank.operations().size(), State::waits);
    result_.operations += static_cast<std::int64_t>(rank.operations().size());
  }
  cpu_free_.resize(schedule.ranks.size() * cpus_);
  std::size_t ports = schedule.ranks.size() * nics_;
  for (const Endpoint& endpoint : endpoints_)
    ports = std::max<std::size_t>(ports, std::max(endpoint.node_port, endpoint.nic_port) + 1);
  send_free_.resize(ports);
  recv_free_.resize(ports);
}

void Runner::add_way(std::size_t kind, double latency_ns, double gap_ns, double port_gb_s) {
  const ProtocolCosts& costs = machine_.protocols[static_cast<std::size_t>(Protocol::simple)];
  ways_.push_back({.latency = from_ns(latency_ns + costs.extra_latency_ns[kind]),
                   .send_overhead = from_ns(costs.send_overhead_ns[kind]),
                   .recv_overhead = from_ns(costs.recv_overhead_ns[kind]),
                   .gap = from_ns(gap_ns),
                   .port_ps_per_byte = 1000 / port_gb_s,
                   .cpu_ps_per_byte = 1000 / costs.thread_block_gb_s[kind]});
}

const Runner::Way& Runner::way(std::uint32_t from, std::uint32_t to) const {
  return ways_[static_cast<std::size_t>(
      way_between(machine_, placement_, static_cast<int>(from), static_cast<int>(to)))];
}

std::uint32_t Runner::port(std::uint32_t rank, std::uint32_t peer, std::uint8_t nic) const {
  if (placement_.nodes() == 1) return rank * static_cast<std::uint32_t>(nics_) + nic;
  const Endpoint& endpoint = endpoints_[rank];
  const bool inside = placement_.same_node(static_cast<int>(rank), static_cast<int>(peer));
  return inside ? endpoint.node_port : endpoint.nic_port;
}

void Runner::push(Time time, Pending what) {
  std::uint32_t place = free_pending_;
  if (place != none) {
    free_pending_ = pending_[place].next_free;
  } else {
    place = static_cast<std::uint32_t>(pending_.size());
    pending_.emplace_back();
  }
  pending_[place] = what;
  queue_.push({time, (sequence_++ << place_bits) | place});
}

void Runner::begun(std::uint32_t rank, std::uint32_t number, Time at) {
  progress_[rank][number] = State::begun;
  for (const std::uint32_t to : schedule_.ranks[rank].after_start(number)) release(rank, to, at);
}

void Runner::ended(std::uint32_t rank, std::uint32_t number, Time at) {
  progress_[rank][number] = State::ended;
  for (const std::uint32_t to : schedule_.ranks[rank].after_end(number)) release(rank, to, at);
}

void Runner::release(std::uint32_t rank, std::uint32_t number, Time ready) {
  Time& at = ready_[rank][number];
  at = std::max(at, ready);
  if (--waits_[rank][number] == 0) freed_.push_back({.rank = rank, .operation = number});
}

// By rank, then by kind. Equal ones are in the order that std::sort leaves them in, rank by rank,
// as in LogGOPSim: where many operations come free at once, it decides which goes first.
void Runner::push_freed() {
  const auto by_rank = [](const Pending& a, const Pending& b) { return a.rank < b.rank; };
  std::stable_sort(freed_.begin(), freed_.end(), by_rank);
  for (auto first = freed_.begin(); first != freed_.end();) {
    const auto last = std::upper_bound(first, freed_.end(), *first, by_rank);
    std::sort(first, last, [&](const Pending& a, const Pending& b) {
      return operation(a.rank, a.operation).kind < operation(b.rank, b.operation).kind;
    });
    first = last;
  }
  for (const Pending& one : freed_) {
    const Operation& what = operation(one.rank, one.operation);
    Time at = std::max(cpu_free(one.rank, what.cpu), ready_[one.rank][one.operation]);
    if (what.kind == Kind::send) at = std::max(at, send_free_[port(one.rank, what.peer, what.nic)]);
    push(at, one);
  }
  freed_.clear();
}

bool Runner::calculate(std::uint32_t rank, std::uint32_t number, Time now, Time& time) {
  const Operation& what = operation(rank, number);
  Time& free = cpu_free(rank, what.cpu);
  if (free > now) {
    time = free;
    return false;
  }
  free = now + static_cast<Time>(what.size) * picoseconds_per_ns;
  begun(rank, number, now);
  ended(rank, number, free);
  return true;
}

bool Runner::send(std::uint32_t rank, std::uint32_t number, Time now, Time& time) {
  const Operation& what = operation(rank, number);
  const Way& by = way(rank, what.peer);
  Time& cpu = cpu_free(rank, what.cpu);
  Time& leaves = send_free_[port(rank, what.peer, what.nic)];
  if (std::max(cpu, leaves) > now) {
    time = std::max(cpu, leaves);
    return false;
  }
  begun(rank, number, now);
  const auto rest = static_cast<std::int64_t>(what.size > 0 ? what.size - 1 : 0);
  cpu = now + by.send_overhead + transfer_time(by.cpu_ps_per_byte, rest);
  leaves = now + by.gap + transfer_time(by.port_ps_per_byte, rest);
  ++result_.messages;
  result_.bytes += static_cast<std::int64_t>(what.size);
  push(now + by.send_overhead + by.latency,
       {.rank = what.peer, .operation = number, .sender = rank});
  if (what.size <= options_.rendezvous_bytes) ended(rank, number, cpu);
  return true;
}

// A send that waited for its receive.
void Runner::free_sender(std::uint32_t sender, std::uint32_t number, std::uint32_t receiver,
                         Time now) {
  const Operation& what = operation(sender, number);
  if (what.size <= options_.rendezvous_bytes) return;
  Time& cpu = cpu_free(sender, what.cpu);
  Time& leaves = send_free_[port(sender, receiver, what.nic)];
  cpu = std::max(cpu, now);
  leaves = std::max(leaves, now);
  ended(sender, number, now);
}

void Runner::receive(std::uint32_t rank, std::uint32_t number, Time now) {
  const Operation& what = operation(rank, number);
  begun(rank, number, now);
  const auto found = unexpected_.take(rank, what.peer, what.tag);
  if (!found) {
    posted_.put(rank, {.source = what.peer, .tag = what.tag, .operation = number});
    return;
  }
  free_sender(found->source, found->operation, rank, now);
  ended(rank, number, std::max(now, found->end));
}

bool Runner::arrive(const Pending& message, Time now, Time& time) {
  const Operation& what = operation(message.sender, message.operation);
  const Way& by = way(message.sender, message.rank);
  Time& cpu = cpu_free(message.rank, what.cpu);
  Time& enters = recv_free_[port(message.rank, message.sender, what.nic)];
  if (std::max(cpu, enters) > now) {
    time = std::max(cpu, enters);
    return false;
  }
  const auto rest = static_cast<std::int64_t>(what.size > 0 ? what.size - 1 : 0);
  cpu = now + by.recv_overhead +
        transfer_time(std::max(by.cpu_ps_per_byte, by.port_ps_per_byte), rest);
  enters = now + by.gap + transfer_time(by.port_ps_per_byte, rest);
  const auto found = posted_.take(message.rank, message.sender, what.tag);
  if (!found) {
    unexpected_.put(message.rank, {message.sender, what.tag, message.operation, cpu});
    return true;
  }
  free_sender(message.sender, message.operation, message.rank, now);
  ended(message.rank, found->operation, cpu);
  return true;
}

void Runner::happen(const Event& event) {
  const auto place = static_cast<std::uint32_t>(event.key & place_mask);
  const Pending what = pending_[place];
  Time time = 0;
  bool is_done = true;
  if (what.sender != none) {
    is_done = arrive(what, event.time, time);
  } else {
    switch (operation(what.rank, what.operation).kind) {
      case Kind::calc:
        is_done = calculate(what.rank, what.operation, event.time, time);
        break;
      case Kind::send:
        is_done = send(what.rank, what.operation, event.time, time);
        break;
      case Kind::recv:
        receive(what.rank, what.operation, event.time);
        break;
    }
  }
  if (!is_done) return push_again(time, event.key);
  pending_[place].next_free = free_pending_;
  free_pending_ = place;
  push_freed();
}

Status Runner::check_end() const {
  UNISONO_TRY(check_progress(schedule_, progress_));
  if (const auto left = unexpected_.left())
    return misuse("at the end a message from rank ", left->what.source, " to rank ", left->rank,
                  " with tag ", left->what.tag, " had not been received");
  return {};
}

Result<RunResult> Runner::run() {
  for (std::uint32_t rank = 0; rank < waits_.size(); ++rank)
    for (std::uint32_t i = 0; i < waits_[rank].size(); ++i)
      if (waits_[rank][i] == 0) freed_.push_back({.rank = rank, .operation = i});
  push_freed();
  while (!queue_.empty()) {
    if (++result_.events > options_.max_events)
      return misuse("the simulation needs more than ", options_.max_events, " events");
    happen(queue_.pop());
  }
  UNISONO_TRY(check_end());
  for (std::uint32_t rank = 0; rank < waits_.size(); ++rank) {
    const auto first = cpu_free_.begin() + static_cast<std::ptrdiff_t>(rank * cpus_);
    result_.ranks.push_back(*std::max_element(first, first + static_cast<std::ptrdiff_t>(cpus_)));
    if (result_.ranks.back() <= result_.finished) continue;
    result_.finished = result_.ranks.back();
    result_.last_rank = static_cast<int>(rank);
  }
  result_.pending_events = queue_.largest_size();
  return std::move(result_);
}

}  // namespace

Result<RunResult> run(const Machine& machine, const Schedule& schedule, const Options& options) {
  UNISONO_TRY(simulate::check(machine));
  UNISONO_ASSIGN(const topo::Placement placement,
                 place(machine, static_cast<int>(schedule.ranks.size())));
  return Runner(machine, schedule, placement, options).run();
}

}  // namespace unisono::simulate::goal
