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
  constexpr std::array<std::string_view, share_count> names{"launch", "overhead",     "latency",
                                                            "port",   "thread block", "reduction",
                                                            "copy",   "compute",      "queue"};
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
  free_instances_.resize(endpoints_.size());
  finished_.resize(endpoints_.size());
  for (const ProtocolCosts& costs : machine.protocols) make_ways(costs);
}

std::int64_t Executor::wire_bytes(const Thread& thread) {
  const double factor = thread.call->wire_factor;
  return factor == 1 ? thread.bytes : std::llround(factor * static_cast<double>(thread.bytes));
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

Result<ExecutorResult> Executor::run(Driver& driver) {
  if (options_.model == NetworkModel::flows) make_routes();
  UNISONO_TRY(driver.begin(*this));
  UNISONO_TRY(run_events(driver));
  UNISONO_TRY(report());
  return result();
}

void Executor::schedule(std::uint32_t thread, Time time, Stage stage) {
  threads_[thread].stage = stage;
  queue_.push({time, key_of(Kind::thread_block, threads_[thread].endpoint, thread)});
}

Status Executor::report() {
  if (options_.progress == nullptr) return {};
  const bool goes_on = options_.progress->report(static_cast<std::uint64_t>(result_.steps));
  return goes_on ? Status{} : misuse("the simulation was stopped");
}

Status Executor::run_events(Driver& driver) {
  while (true) {
    if (result_.events % events_between_reports == 0) UNISONO_TRY(report());
    const Time next = queue_.empty() ? INT64_MAX : queue_.first().time;
    if (!queue_.empty() && next > options_.last_time) {
      result_.is_cut = true;
      return {};
    }
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
                    " events; raise max_events, or use fewer ranks, larger slots or fewer tiles");
    const auto whom = static_cast<std::uint32_t>(event.key);
    switch (static_cast<Kind>(event.key >> 56)) {
      case Kind::arrival:
        arrive((whom & unreceived) != 0 ? whom & ~unreceived : threads_[whom].in, event.time);
        break;
      case Kind::inject:
        inject(whom, event.time);
        break;
      case Kind::thread_block:
        happen(whom, event.time);
        break;
      case Kind::end:
        UNISONO_TRY(end(whom, driver));
        break;
    }
  }
  if (running_ > 0) return misuse(explain_standstill());
  return check_messages();
}

Status Executor::check_messages() const {
  for (const Connection& connection : connections_) {
    if (connection.untaken == none) continue;
    int left = 0;
    for (std::uint32_t i = connection.untaken; i != none; i = messages_[i].next) ++left;
    return misuse("at the end ", left, left == 1 ? " message" : " messages", " from rank ",
                  endpoints_[connection.from].shown_rank, " to rank ",
                  endpoints_[connection.to].shown_rank, " on channel ", connection.channel,
                  " had not been received");
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
  result_.first_finished = *std::min_element(finished_.begin(), finished_.end());
  if (routes_) result_.links = routes_->use();
  result_.hops = std::move(hops_);
  result_.ports = std::move(ports_);
  result_.pending_events = queue_.largest_size();
  result_.thread_blocks = threads_.size();
  return std::move(result_);
}

}  // namespace unisono::simulate
