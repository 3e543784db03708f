#include "simulate/goal_run.h"

#include <algorithm>

#include "base/error.h"
#include "base/try.h"
#include "simulate/event_queue.h"
#include "simulate/goal_match.h"
#include "simulate/goal_standstill.h"
#include "simulate/goal_waiting.h"
#include "simulate/wiring.h"

namespace unisono::simulate::goal {
namespace {

constexpr std::uint32_t none = UINT32_MAX;
// A kind of WaitingClass, in addition to those of operations.
constexpr std::uint32_t message_kind = 16;

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
    bool has_waited = false;  // and stands in the queue for those that wait as it does
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
  void happen(const Event& event);
  // What an operation or message needs, other than a receive, and when all of it is free.
  WaitingClass needs(const Pending& what) const;
  Time when_free(const WaitingClass& needs);
  void queue_first(WaitingKeys& keys, const WaitingClass& needs, Time now);
  void calculate(std::uint32_t rank, std::uint32_t number, Time now);
  void send(std::uint32_t rank, std::uint32_t number, Time now);
  void receive(std::uint32_t rank, std::uint32_t number, Time now);
  void arrive(const Pending& message, Time now);
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
  States progress_;
  Matcher posted_, unexpected_;

  EventQueue queue_;
  WaitingClasses waiting_;
  std::vector<Pending> pending_;
  std::uint32_t free_pending_ = none;
  std::uint64_t sequence_ = 0;
  std::uint64_t ended_ = 0;     // operations
  std::vector<Pending> freed_;  // by what happens now
  RunResult result_;
};

// How the receives of each rank name messages.
std::vector<std::uint8_t> names_of(const Schedule& schedule) {
  std::vector<std::uint8_t> result;
  for (const Rank& rank : schedule.ranks) {
    std::uint8_t names = 0;
    for (const Operation& one : rank.operations())
      if (one.kind == Kind::recv) names |= bit(naming(one.peer, one.tag));
    // A message that nobody receives is kept, too.
    result.push_back(names == 0 ? bit(Naming::whole) : names);
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
      posted_(Matcher::Holds::receives, names_of(schedule)),
      unexpected_(Matcher::Holds::messages, names_of(schedule)) {
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
  ++ended_;
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

void Runner::calculate(std::uint32_t rank, std::uint32_t number, Time now) {
  const Operation& what = operation(rank, number);
  Time& free = cpu_free(rank, what.cpu);
  free = now + static_cast<Time>(what.size) * picoseconds_per_ns;
  begun(rank, number, now);
  ended(rank, number, free);
}

void Runner::send(std::uint32_t rank, std::uint32_t number, Time now) {
  const Operation& what = operation(rank, number);
  const Way& by = way(rank, what.peer);
  Time& cpu = cpu_free(rank, what.cpu);
  Time& leaves = send_free_[port(rank, what.peer, what.nic)];
  begun(rank, number, now);
  const auto rest = static_cast<std::int64_t>(what.size > 0 ? what.size - 1 : 0);
  cpu = now + by.send_overhead + transfer_time(by.cpu_ps_per_byte, rest);
  leaves = now + by.gap + transfer_time(by.port_ps_per_byte, rest);
  ++result_.messages;
  result_.bytes += static_cast<std::int64_t>(what.size);
  push(now + by.send_overhead + by.latency,
       {.rank = what.peer, .operation = number, .sender = rank});
  if (what.size <= options_.rendezvous_bytes) ended(rank, number, cpu);
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

void Runner::arrive(const Pending& message, Time now) {
  const Operation& what = operation(message.sender, message.operation);
  const Way& by = way(message.sender, message.rank);
  Time& cpu = cpu_free(message.rank, what.cpu);
  Time& enters = recv_free_[port(message.rank, message.sender, what.nic)];
  const auto rest = static_cast<std::int64_t>(what.size > 0 ? what.size - 1 : 0);
  cpu = now + by.recv_overhead +
        transfer_time(std::max(by.cpu_ps_per_byte, by.port_ps_per_byte), rest);
  enters = now + by.gap + transfer_time(by.port_ps_per_byte, rest);
  const auto found = posted_.take(message.rank, message.sender, what.tag);
  if (!found) {
    unexpected_.put(message.rank, {message.sender, what.tag, message.operation, cpu});
    return;
  }
  free_sender(message.sender, message.operation, message.rank, now);
  ended(message.rank, found->operation, cpu);
}

WaitingClass Runner::needs(const Pending& what) const {
  const bool is_message = what.sender != none;
  const Operation& one = operation(is_message ? what.sender : what.rank, what.operation);
  WaitingClass result{.kind = is_message ? message_kind : static_cast<std::uint32_t>(one.kind),
                      .cpu = std::size_t{what.rank} * cpus_ + one.cpu};
  if (is_message)
    result.port = port(what.rank, what.sender, one.nic);
  else if (one.kind == Kind::send)
    result.port = port(what.rank, one.peer, one.nic);
  return result;
}

Time Runner::when_free(const WaitingClass& needs) {
  const Time cpu = cpu_free_[needs.cpu];
  if (needs.kind == message_kind) return std::max(cpu, recv_free_[needs.port]);
  const bool sends = needs.kind == static_cast<std::uint32_t>(Kind::send);
  return sends ? std::max(cpu, send_free_[needs.port]) : cpu;
}

void Runner::queue_first(WaitingKeys& keys, const WaitingClass& needs, Time now) {
  while (keys.must_queue()) queue_.push({std::max(now, when_free(needs)), keys.queue_first()});
}

void Runner::happen(const Event& event) {
  const auto place = static_cast<std::uint32_t>(event.key & place_mask);
  const Pending what = pending_[place];
  const bool is_message = what.sender != none;
  const Kind kind = is_message ? Kind::send : operation(what.rank, what.operation).kind;
  if (kind == Kind::recv) {
    receive(what.rank, what.operation, event.time);
  } else {
    const WaitingClass needed = needs(what);
    const bool must_wait = when_free(needed) > event.time;
    if (must_wait || what.has_waited) {
      WaitingKeys& keys = waiting_[needed];
      if (what.has_waited) keys.remove_queued(event.key);
      if (must_wait) {
        pending_[place].has_waited = true;
        keys.add(event.key);
        return queue_first(keys, needed, event.time);
      }
    }
    if (is_message)
      arrive(what, event.time);
    else if (kind == Kind::send)
      send(what.rank, what.operation, event.time);
    else
      calculate(what.rank, what.operation, event.time);
    if (what.has_waited) queue_first(waiting_[needed], needed, event.time);
  }
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
  Progress none_watches;
  Progress& progress = options_.progress != nullptr ? *options_.progress : none_watches;
  progress.set_total(static_cast<std::uint64_t>(result_.operations));
  while (!queue_.empty()) {
    if (++result_.events > options_.max_events)
      return misuse("the simulation needs more than ", options_.max_events, " events");
    if (result_.events % events_between_reports == 0 && !progress.report(ended_))
      return misuse("the simulation was stopped");
    happen(queue_.pop());
  }
  progress.report(ended_);
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
