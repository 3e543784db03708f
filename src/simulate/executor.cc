#include "simulate/executor.h"

#include <algorithm>

#include "base/error.h"
#include "base/try.h"

namespace unisono::simulate {
namespace {

constexpr double ps_per_byte(double gb_s) { return 1000 / gb_s; }

}  // namespace

std::string_view name(NetworkModel model) {
  constexpr std::array<std::string_view, network_model_count> names{"loggops", "flows",
                                                                    "alpha_beta"};
  return names[static_cast<std::size_t>(model)];
}

std::string_view name(Share share) {
  constexpr std::array<std::string_view, share_count> names{
      "launch", "overhead", "latency", "port", "thread block", "reduction", "copy", "queue"};
  return names[static_cast<std::size_t>(share)];
}

Executor::Executor(const Machine& machine, std::vector<Endpoint> endpoints, ExecutorOptions options)
    : machine_(machine), endpoints_(std::move(endpoints)), options_(options) {
  std::uint32_t ports = 0;
  std::uint32_t cores = 0;
  for (const Endpoint& endpoint : endpoints_) {
    ports = std::max({ports, endpoint.node_port + 1, endpoint.nic_port + 1});
    cores = std::max(cores, endpoint.core + 1);
  }
  send_free_.resize(ports);
  recv_free_.resize(ports);
  ports_.resize(ports);
  core_free_.resize(cores);
  if (machine.reduce_gb_s > 0) reduce_ps_per_byte_ = ps_per_byte(machine.reduce_gb_s);
  if (machine.copy_gb_s > 0) copy_ps_per_byte_ = ps_per_byte(machine.copy_gb_s);
}

void Executor::make_ways(Protocol protocol) {
  const ProtocolCosts& costs = machine_.protocols[static_cast<std::size_t>(protocol)];
  launch_ = from_ns(costs.launch_ns);
  wire_factor_ = costs.wire_bytes_per_byte;
  const auto make = [&](std::size_t kind, double latency_ns, double gap_ns, double port_gb_s) {
    Way way{.latency = from_ns(latency_ns + costs.extra_latency_ns[kind]),
            .send_overhead = from_ns(costs.send_overhead_ns[kind]),
            .recv_overhead = from_ns(costs.recv_overhead_ns[kind]),
            .gap = from_ns(gap_ns),
            .port_ps_per_byte = ps_per_byte(port_gb_s),
            .thread_ps_per_byte = ps_per_byte(costs.thread_block_gb_s[kind]),
            .inter_node = kind == 1};
    way.wire_ps_per_byte = std::max(way.port_ps_per_byte, way.thread_ps_per_byte);
    ways_.push_back(way);
  };
  make(0, machine_.node_latency_ns, machine_.node_gap_ns, machine_.node_gb_s);
  for (const Level& level : machine_.levels)
    make(1, level.latency_ns, machine_.nic_gap_ns, machine_.nic_gb_s);
}

std::int64_t Executor::wire_bytes(std::int64_t bytes) const {
  return wire_factor_ == 1 ? bytes : std::llround(wire_factor_ * static_cast<double>(bytes));
}

std::uint32_t Executor::connection_of(std::uint64_t key) {
  const auto next = static_cast<std::uint32_t>(connections_.size());
  const auto [found, is_new] = half_connected_.try_emplace(key, next);
  if (is_new) {
    connections_.emplace_back();
    return next;
  }
  const std::uint32_t connection = found->second;
  half_connected_.erase(found);
  return connection;
}

void Executor::make_routes() {
  int nodes = 0;
  for (const Endpoint& endpoint : endpoints_) nodes = std::max(nodes, endpoint.node + 1);
  std::vector<double> port_gb_s(ports_.size(), 0);
  for (const Endpoint& endpoint : endpoints_) {
    port_gb_s[endpoint.nic_port] = machine_.nic_gb_s;
    port_gb_s[endpoint.node_port] = machine_.node_gb_s;
  }
  routes_ = std::make_unique<Routes>(machine_, nodes, port_gb_s);
}

Status Executor::start_rank(std::uint32_t rank, Programs& programs) {
  UNISONO_ASSIGN(WiredProgram wired, programs.program(static_cast<int>(rank)));
  Rank& state = ranks_[rank];
  state.program = std::move(wired.program);
  state.first_thread = static_cast<std::uint32_t>(threads_.size());
  const auto blocks = static_cast<std::uint32_t>(state.program.thread_blocks.size());
  for (std::uint32_t index = 0; index < blocks; ++index) {
    const plan::ThreadBlock& block = state.program.thread_blocks[index];
    const auto number = static_cast<std::uint32_t>(threads_.size());
    Thread& thread = threads_.emplace_back(block, rank, index);
    const Wire& wire = wired.wires[index];
    if (block.send_peer >= 0) {
      thread.out = connection_of(wire.send_key);
      Connection& out = connections_[thread.out];
      const bool inside = wire.send_way == 0;
      const Endpoint& from = endpoints_[rank];
      const Endpoint& to = endpoints_[static_cast<std::size_t>(block.send_peer)];
      out.sender = number;
      out.way = static_cast<std::uint32_t>(wire.send_way);
      out.send_port = inside ? from.node_port : from.nic_port;
      out.recv_port = inside ? to.node_port : to.nic_port;
    }
    if (block.recv_peer >= 0) {
      thread.in = connection_of(wire.recv_key);
      connections_[thread.in].receiver = number;
    }
    if (thread.cursor.step() == nullptr || sizes_.tiles() == 0) {
      thread.stage = Stage::ended;
      continue;
    }
    thread.time = launch_;
    ++state.running;
    ++running_;
  }
  if (state.running == 0) state.finished = launch_;
  return {};
}

Result<ExecutorResult> Executor::run(const plan::Header& header, const StepSizes& sizes,
                                     Programs& programs) {
  sizes_ = sizes;
  make_ways(header.protocol);
  ranks_.resize(endpoints_.size());
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank)
    UNISONO_TRY(start_rank(rank, programs));
  if (options_.explain) {
    Path launched;
    launched.shares[static_cast<std::size_t>(Share::launch)] = launch_;
    paths_.assign(threads_.size(), launched);
    finished_paths_ = paths_;
  }
  if (options_.model == NetworkModel::flows) make_routes();
  for (std::uint32_t thread = 0; thread < threads_.size(); ++thread)
    if (threads_[thread].stage != Stage::ended) schedule(thread, launch_, Stage::begin);
  UNISONO_TRY(run_events());
  return result();
}

void Executor::schedule(std::uint32_t thread, Time time, Stage stage) {
  threads_[thread].stage = stage;
  queue_.push({time, key_of(Kind::thread_block, thread)});
}

Status Executor::run_events() {
  while (true) {
    const Time next = queue_.empty() ? INT64_MAX : queue_.first().time;
    if (routes_ && routes_->network().has_next() && routes_->network().next_time(next) <= next) {
      ++result_.events;
      const FlowNetwork::End end = routes_->network().end_next();
      end_flow(end.tag, end.time);
      continue;
    }
    if (queue_.empty()) break;
    const Event event = queue_.pop();
    if (++result_.events > options_.max_events)
      return misuse("the simulation needs more than ", options_.max_events,
                    " events; allow more, or take fewer ranks, larger slots or fewer tiles");
    const auto whom = static_cast<std::uint32_t>(event.key);
    switch (static_cast<Kind>(event.key >> 32)) {
      case Kind::arrival:
        arrive((whom & unreceived) != 0 ? whom & ~unreceived : threads_[whom].in, event.time);
        break;
      case Kind::inject:
        inject(whom, event.time);
        break;
      case Kind::thread_block:
        happen(whom, event.time);
        break;
    }
  }
  if (running_ > 0) return misuse(explain_standstill());
  for (const Connection& connection : connections_) {
    if (connection.untaken == none) continue;
    int left = 0;
    for (std::uint32_t i = connection.untaken; i != none; i = messages_[i].next) ++left;
    const Thread& sender = threads_[connection.sender];
    return misuse("at the end ", left, left == 1 ? " message" : " messages", " from rank ",
                  endpoints_[sender.rank].shown_rank, " to rank ", sender.block->send_peer,
                  " on channel ", sender.block->channel, " had not been received");
  }
  return {};
}

void Executor::happen(std::uint32_t thread, Time now) {
  switch (threads_[thread].stage) {
    case Stage::begin:
      begin(thread, now);
      break;
    case Stage::take:
      take(thread, now);
      break;
    case Stage::send:
      send(thread, now);
      break;
    case Stage::finish:
      finish(thread, now, now);
      break;
    case Stage::ended:
      break;
  }
}

ExecutorResult Executor::result() {
  result_.first_finished = INT64_MAX;
  std::uint32_t last_thread = none;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const Time finished = ranks_[rank].finished;
    result_.first_finished = std::min(result_.first_finished, finished);
    if (finished <= result_.finished) continue;
    result_.finished = finished;
    result_.last_rank = endpoints_[rank].shown_rank;
    const auto& blocks = ranks_[rank].program.thread_blocks;
    for (std::uint32_t i = 0; i < blocks.size(); ++i)
      if (threads_[ranks_[rank].first_thread + i].finished_at == finished)
        last_thread = ranks_[rank].first_thread + i;
  }
  if (options_.explain && last_thread != none) result_.path = finished_paths_[last_thread];
  result_.hops = std::move(hops_);
  result_.ports = std::move(ports_);
  result_.pending_events = queue_.largest_size();
  return std::move(result_);
}

}  // namespace unisono::simulate
