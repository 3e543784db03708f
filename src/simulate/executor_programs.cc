// Programs begin and end: their thread blocks, their connections, and what becomes of both.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "simulate/executor.h"

namespace unisono::simulate {
namespace {

constexpr double ps_per_byte(double gb_s) { return 1000 / gb_s; }

// 0: no time.
constexpr double ps_per_byte_or_none(double gb_s) { return gb_s > 0 ? ps_per_byte(gb_s) : 0; }

}  // namespace

void Executor::make_ways(const ProtocolCosts& costs) {
  const auto make = [&](std::size_t kind, double latency_ns, double gap_ns, double port_gb_s) {
    Way way{.latency = from_ns(latency_ns + costs.extra_latency_ns[kind]),
            .send_overhead = from_ns(costs.send_overhead_ns[kind]),
            .recv_overhead = from_ns(costs.recv_overhead_ns[kind]),
            .gap = from_ns(gap_ns),
            .port_ps_per_byte = ps_per_byte(port_gb_s),
            .thread_ps_per_byte = ps_per_byte(costs.thread_block_gb_s[kind]),
            .inter_node = kind == 1};
    way.wire_ps_per_byte = std::max(way.port_ps_per_byte, way.thread_ps_per_byte);
    way.receive_ps_per_byte = ps_per_byte_or_none(costs.receive_gb_s[kind]);
    if (way.inter_node && options_.model == NetworkModel::log_gops)
      way.burst = transfer_time(way.port_ps_per_byte, machine_.nic_burst_bytes);
    ways_.push_back(way);
  };
  make(0, machine_.node_latency_ns, machine_.node_gap_ns, machine_.node_gb_s);
  for (const Level& level : machine_.levels)
    make(1, level.latency_ns, machine_.nic_gap_ns, machine_.nic_gb_s);
}

std::shared_ptr<const Call> Executor::make_call(Protocol protocol, const StepSizes& sizes,
                                                std::string what) const {
  const auto number = static_cast<std::size_t>(protocol);
  const ProtocolCosts& costs = machine_.protocols[number];
  const bool has_copy = costs.copy_gb_s > 0;
  return std::make_shared<const Call>(Call{
      .sizes = sizes,
      .launch = from_ns(costs.launch_ns),
      .launch_gap = from_ns(costs.launch_gap_ns),
      .reduction_overhead = from_ns(costs.reduction_overhead_ns),
      .copy_overhead = from_ns(costs.copy_overhead_ns),
      .reduce_ps_per_byte =
          ps_per_byte_or_none(costs.reduce_gb_s > 0 ? costs.reduce_gb_s : machine_.reduce_gb_s),
      .copy_ps_per_byte = ps_per_byte_or_none(has_copy ? costs.copy_gb_s : machine_.copy_gb_s),
      .pays_for_stores = has_copy,
      .wire_factor = costs.wire_bytes_per_byte,
      .first_way = static_cast<std::uint32_t>(number * (1 + machine_.levels.size())),
      .what = std::move(what)});
}

Status Executor::start(Start what) {
  if (what.endpoint >= endpoints_.size())
    return bug("endpoint ", what.endpoint, " was asked to start; there are ", endpoints_.size());
  const auto blocks = static_cast<std::uint32_t>(what.program.program.thread_blocks.size());
  const std::uint32_t number = take_instance(what.endpoint, blocks);
  Instance& instance = instances_[number];
  instance.call = std::move(what.call);
  instance.tag = what.tag;
  instance.line = what.line;
  instance.began = instance.finished = what.at;
  instance.running = instance.at_barrier = 0;
  Path path;
  if (what.path != nullptr) path = *what.path;
  if (!instance.call) {
    instance.finished += what.duration;
    path.shares[static_cast<std::size_t>(Share::compute)] += what.duration;
    instance.path = path;
    if (options_.timeline != nullptr && !what.shown.empty() && what.duration > 0)
      options_.timeline->bar(endpoints_[what.endpoint].shown_rank, what.line, what.shown, what.at,
                             instance.finished, 0);
    schedule_end(number);
    return {};
  }
  const Call& call = *instance.call;
  instance.finished += call.launch;
  path.shares[static_cast<std::size_t>(Share::launch)] += call.launch;
  instance.path = path;
  instance.program = std::move(what.program.program);
  for (std::uint32_t index = 0; index < blocks; ++index) {
    const std::uint32_t place = instance.first_thread + index;
    Thread& thread = threads_[place] = Thread(instance.program.thread_blocks[index], call);
    thread.endpoint = what.endpoint;
    thread.instance = number;
    thread.index = index;
    connect(place, what.program.wires[index], what.call_key, what.line);
    if (options_.explain) paths_[place] = finished_paths_[place] = path;
    path.shares[static_cast<std::size_t>(Share::launch)] += call.launch_gap;
    if (thread.cursor.step() == nullptr || call.sizes.tiles() == 0) {
      thread.stage = Stage::ended;
      continue;
    }
    thread.time = instance.finished + static_cast<Time>(index) * call.launch_gap;
    ++instance.running;
    ++running_;
    schedule(place, thread.time, Stage::begin);
  }
  if (instance.running == 0) schedule_end(number);
  return {};
}

std::uint32_t Executor::take_instance(std::uint32_t endpoint, std::uint32_t blocks) {
  std::vector<std::uint32_t>& free = free_instances_[endpoint];
  const auto fits = [&](std::uint32_t number) { return instances_[number].places >= blocks; };
  const auto found = std::find_if(free.begin(), free.end(), fits);
  if (found != free.end()) {
    const std::uint32_t number = *found;
    free.erase(found);
    return number;
  }
  const auto number = static_cast<std::uint32_t>(instances_.size());
  Instance& added = instances_.emplace_back();
  added.endpoint = endpoint;
  added.first_thread = static_cast<std::uint32_t>(threads_.size());
  added.places = blocks;
  threads_.resize(threads_.size() + blocks);
  if (options_.explain) {
    paths_.resize(threads_.size());
    finished_paths_.resize(threads_.size());
  }
  return number;
}

void Executor::connect(std::uint32_t number, const Wire& wire, std::uint64_t call_key, int line) {
  Thread& thread = threads_[number];
  const plan::ThreadBlock& block = *thread.block;
  if (block.send_peer >= 0) {
    thread.out = connection_of({wire.send_key, call_key});
    Connection& out = connections_[thread.out];
    const bool inside = wire.send_way == 0;
    out.from = thread.endpoint;
    out.to = static_cast<std::uint32_t>(block.send_peer);
    const Endpoint& from = endpoints_[out.from];
    const Endpoint& to = endpoints_[out.to];
    out.sender = number;
    out.channel = block.channel;
    out.sender_line = line + static_cast<int>(thread.index);
    out.way = thread.call->first_way + static_cast<std::uint32_t>(wire.send_way);
    out.send_port = inside ? from.node_port : from.nic_port;
    out.recv_port = inside ? to.node_port : to.nic_port;
  }
  if (block.recv_peer >= 0) {
    thread.in = connection_of({wire.recv_key, call_key});
    connections_[thread.in].receiver = number;
  }
}

std::uint32_t Executor::connection_of(ConnectionKey key) {
  const auto found = half_connected_.find(key);
  if (found != half_connected_.end()) {
    const std::uint32_t connection = found->second;
    half_connected_.erase(found);
    return connection;
  }
  std::uint32_t number;
  if (free_connections_.empty()) {
    number = static_cast<std::uint32_t>(connections_.size());
    connections_.emplace_back();
  } else {
    number = free_connections_.back();
    free_connections_.pop_back();
  }
  connections_[number] = {};
  connections_[number].key = key.wire ^ (key.call * 0xbf58476d1ce4e5b9);
  half_connected_.emplace(key, number);
  return number;
}

void Executor::schedule_end(std::uint32_t number) {
  const Instance& instance = instances_[number];
  queue_.push({instance.finished, key_of(Kind::end, instance.endpoint, number)});
}

Path Executor::path_of(const Instance& instance) const {
  const auto blocks = static_cast<std::uint32_t>(instance.program.thread_blocks.size());
  for (std::uint32_t i = instance.first_thread + blocks; i-- > instance.first_thread;)
    if (threads_[i].finished_at == instance.finished) return finished_paths_[i];
  return instance.path;
}

Status Executor::end(std::uint32_t number, Driver& driver) {
  Instance& instance = instances_[number];
  Ended ended{.endpoint = instance.endpoint,
              .tag = instance.tag,
              .began = instance.began,
              .at = instance.finished,
              .path = {}};
  if (options_.explain) ended.path = path_of(instance);
  finished_[ended.endpoint] = std::max(finished_[ended.endpoint], ended.at);
  if (ended.at > result_.finished) {
    result_.finished = ended.at;
    result_.last_rank = endpoints_[ended.endpoint].shown_rank;
    result_.path = ended.path;
  }
  bool is_reusable = true;
  const auto blocks = static_cast<std::uint32_t>(instance.program.thread_blocks.size());
  for (std::uint32_t i = instance.first_thread; i < instance.first_thread + blocks; ++i)
    is_reusable = disconnect(threads_[i]) && is_reusable;
  if (is_reusable) {
    instance.program = {};
    instance.call.reset();
    free_instances_[ended.endpoint].push_back(number);
  }
  return driver.ended(*this, ended);
}

// False if messages are still on their way to the thread block, which nobody will take.
bool Executor::disconnect(const Thread& thread) {
  bool is_reusable = true;
  if (thread.out != none) {
    connections_[thread.out].sender = none;
    connections_[thread.out].sender_ended = true;
    free_if_unused(thread.out);
  }
  if (thread.in != none) {
    Connection& in = connections_[thread.in];
    in.receiver_ended = true;
    if (in.undelivered == none)
      in.receiver = none;
    else
      is_reusable = false;
    free_if_unused(thread.in);
  }
  return is_reusable;
}

void Executor::free_if_unused(std::uint32_t number) {
  Connection& connection = connections_[number];
  if (!connection.sender_ended || !connection.receiver_ended || connection.untaken != none) return;
  while (connection.first != none) free_first(connection);
  connection = {};
  free_connections_.push_back(number);
}

}  // namespace unisono::simulate
