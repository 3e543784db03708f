#include "simulate/collective.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/try.h"
#include "plan/check.h"
#include "simulate/collapse.h"
#include "simulate/wiring.h"

namespace unisono::simulate {
namespace {

// The programs of an algorithm, written when their rank starts.
class EntryPrograms final : public Programs {
 public:
  EntryPrograms(const Machine& machine, const algorithm::Entry& entry,
                const algorithm::Request& request)
      : machine_(machine), entry_(entry), request_(request) {}

  Result<WiredProgram> program(int rank) override {
    WiredProgram wired{entry_.program(request_, rank), {}, {}};
    wired.wires = wires_of(machine_, request_.placement, wired.program);
    return wired;
  }
  // Renumbered ranks' blocks are cut as before; chunks of one block may go to others.
  Symmetry symmetry(int ranks, bool uniform) const override {
    const plan::Header header = entry_.header(request_);
    const bool of_ranks = std::max(header.input_blocks, header.output_blocks) == ranks;
    return of_ranks || uniform ? Symmetry::of(entry_.symmetry(request_), request_.placement)
                               : Symmetry::none(ranks);
  }

 private:
  const Machine& machine_;
  const algorithm::Entry& entry_;
  const algorithm::Request& request_;
};

class PlanPrograms final : public Programs {
 public:
  PlanPrograms(const Machine& machine, const plan::Plan& plan, const topo::Placement& placement)
      : machine_(machine), plan_(plan), placement_(placement) {}

  Result<WiredProgram> program(int rank) override {
    const plan::RankProgram& program = plan_.programs[static_cast<std::size_t>(rank)];
    return WiredProgram{program, wires_of(machine_, placement_, program), {}};
  }

 private:
  const Machine& machine_;
  const plan::Plan& plan_;
  const topo::Placement& placement_;
};

// All ranks begin their program at time 0, and again when their part of it has ended: what a bench
// sees that calls back to back.
class Calls final : public Driver {
 public:
  Calls(Programs& programs, const plan::Header& header, const StepSizes& sizes, int endpoints,
        const CollectiveOptions& options)
      : programs_(programs),
        header_(header),
        sizes_(sizes),
        endpoints_(endpoints),
        calls_(options.calls),
        progress_(options.progress) {}

  Status begin(Executor& executor) override {
    call_ = executor.make_call(header_.protocol, sizes_, "");
    for (int rank = 0; rank < endpoints_; ++rank)
      UNISONO_TRY(start(executor, static_cast<std::uint32_t>(rank), 0, 0, nullptr));
    if (progress_ != nullptr)
      progress_->set_total(first_steps_ * static_cast<std::uint64_t>(calls_));
    return {};
  }
  Status ended(Executor& executor, const Ended& what) override {
    const std::uint64_t next = what.tag + 1;
    if (next >= static_cast<std::uint64_t>(calls_)) return {};
    return start(executor, what.endpoint, next, what.at, &what.path);
  }

 private:
  Status start(Executor& executor, std::uint32_t endpoint, std::uint64_t number, Time at,
               const Path* path) {
    UNISONO_ASSIGN(WiredProgram program, programs_.program(static_cast<int>(endpoint)));
    if (number == 0) first_steps_ += steps_of(program.program, sizes_);
    return executor.start({.endpoint = endpoint,
                           .tag = number,
                           .at = at,
                           .call = call_,
                           .call_key = number,
                           .program = std::move(program),
                           .path = path});
  }

  Programs& programs_;
  const plan::Header& header_;
  const StepSizes& sizes_;
  int endpoints_;
  int calls_;
  Progress* progress_;
  std::uint64_t first_steps_ = 0;  // of all ranks' first calls
  std::shared_ptr<const Call> call_;
};

Status check_call(const Machine& machine, const topo::Placement& placement,
                  const CollectiveOptions& options) {
  UNISONO_TRY(check(machine));
  if (placement.ranks() > max_machine_ranks)
    return misuse("ranks is ", placement.ranks(), "; it must be 1 to ", max_machine_ranks);
  if (placement.nodes() > machine.nodes)
    return misuse("the ranks are on ", placement.nodes(), " nodes; ", machine.name, " has ",
                  machine.nodes);
  if (placement.max_ranks_on_a_node() > machine.ranks_per_node)
    return misuse("a node has ", placement.max_ranks_on_a_node(), " ranks; one of ", machine.name,
                  " has ", machine.ranks_per_node);
  if (options.calls < 1 || options.calls > max_calls)
    return misuse("calls is ", options.calls, "; it must be 1 to ", max_calls);
  if (std::isnan(options.noise) || options.noise < 0 || options.noise > 100)
    return misuse("noise is ", options.noise, "; it must be 0 to 100");
  return {};
}

// Messages meet only in the ports of ranks and NICs, whose users collapse() holds alike.
bool shares_uplinks(const Machine& machine, const topo::Placement& placement) {
  return placement.nodes() > 1 && std::any_of(machine.levels.begin(), machine.levels.end() - 1,
                                              [](const Level& level) { return level.uplinks > 0; });
}

std::string why_not_collapse(const Machine& machine, const topo::Placement& placement,
                             const CollectiveOptions& options) {
  if (options.model == NetworkModel::flows && shares_uplinks(machine, placement))
    return "flows share links between nodes";
  if (options.noise > 0) return "noise tells ranks apart";
  if (options.timeline >= 0) return "a time-line shows every rank";
  return "";
}

// A NIC once, whatever the number of its ranks; none where no other node is.
std::vector<ShownPort> shown_ports(const Machine& machine, const topo::Placement& placement,
                                   const std::vector<Endpoint>& endpoints) {
  std::vector<ShownPort> shown;
  for (const Endpoint& endpoint : endpoints)
    shown.push_back({endpoint.node_port, endpoint.shown_rank, -1});
  if (placement.nodes() == 1) return shown;
  std::vector<bool> seen;
  for (const Endpoint& endpoint : endpoints) {
    if (seen.size() <= endpoint.nic_port) seen.resize(endpoint.nic_port + 1);
    if (seen[endpoint.nic_port]) continue;
    seen[endpoint.nic_port] = true;
    const int nic = nic_of(machine, placement, endpoint.shown_rank);
    shown.push_back({endpoint.nic_port, endpoint.node, nic});
  }
  return shown;
}

Result<CollectiveResult> simulate(const Machine& machine, const plan::Header& header,
                                  const topo::Placement& placement, std::int64_t count,
                                  DataType type, const CollectiveOptions& options,
                                  Programs& programs) {
  const auto element_bytes = static_cast<std::int64_t>(size_bytes(type));
  UNISONO_TRY(check_size(header, count, element_bytes));
  const StepSizes sizes(header, machine, count, element_bytes);
  CollectiveResult result;
  result.ranks = placement.ranks();
  result.nodes = placement.nodes();
  result.tiles = sizes.tiles();
  result.largest_message_bytes = sizes.largest_bytes(header.max_step_count);
  ExecutorOptions run_options{.model = options.model,
                              .noise = options.noise,
                              .seed = options.seed,
                              .explain = options.explain,
                              .max_events = options.max_events,
                              .last_time = options.last_time,
                              .progress = options.progress};
  std::unique_ptr<Timeline> timeline;
  if (options.timeline >= 0) {
    const auto rank_name = [&](int rank) { return shown_name(placement, rank); };
    const auto line_name = [](int, int block) { return str("thread block ", block); };
    timeline = std::make_unique<Timeline>(options.timeline, TimelineNames{rank_name, line_name});
    run_options.timeline = timeline.get();
  }
  std::vector<Endpoint> endpoints = endpoints_of(machine, placement);
  Programs* source = &programs;
  std::unique_ptr<CollapsedPrograms> collapsed;
  if (options.collapse) result.not_collapsed = why_not_collapse(machine, placement, options);
  if (options.collapse && result.not_collapsed.empty()) {
    UNISONO_ASSIGN(collapsed, collapse(machine, endpoints, programs, sizes.chunks()));
    if (collapsed) {
      source = collapsed.get();
      endpoints = collapsed->endpoints();
    } else {
      result.not_collapsed = "no two ranks do the same";
    }
  }
  result.simulated_ranks = static_cast<int>(endpoints.size());
  Executor executor(machine, endpoints, run_options);
  Calls calls(*source, header, sizes, result.simulated_ranks, options);
  auto run = executor.run(calls);
  const bool stopped = options.progress != nullptr && options.progress->is_stopped();
  if (!run.ok() && collapsed && !stopped) {
    // A failure names ranks, not classes of them.
    Executor full(machine, endpoints_of(machine, placement), run_options);
    Calls all(programs, header, sizes, result.ranks, options);
    UNISONO_TRY(full.run(all));
    return bug("the collapsed run of ", header.name,
               " failed, the full one did not: ", run.error().message);
  }
  UNISONO_ASSIGN(result.run, std::move(run));
  const auto bytes_of = [&](std::uint32_t port) { return result.run.ports[port].bytes_sent; };
  for (const Endpoint& endpoint : endpoints) {
    result.node_port_bytes = std::max(result.node_port_bytes, bytes_of(endpoint.node_port));
    result.nic_bytes = std::max(result.nic_bytes, bytes_of(endpoint.nic_port));
  }
  result.ports = shown_ports(machine, placement, endpoints);
  if (timeline) UNISONO_TRY(timeline->finish());
  return result;
}

}  // namespace

double closed_form_us(const Machine& machine, const algorithm::Request& request,
                      const algorithm::Cost& cost) {
  const ProtocolCosts& costs = machine.protocols[static_cast<std::size_t>(request.protocol)];
  const auto alpha_ns = [&](std::size_t kind, double latency_ns) {
    return costs.send_overhead_ns[kind] + costs.recv_overhead_ns[kind] + latency_ns +
           costs.extra_latency_ns[kind];
  };
  const auto ns_per_byte = [&](std::size_t kind, double port_gb_s) {
    const double channels = request.channels;
    return costs.wire_bytes_per_byte /
           std::min(port_gb_s, costs.thread_block_gb_s[kind] * channels);
  };
  const double between_latency = machine.levels.empty() ? 0 : machine.levels.back().latency_ns;
  const auto between = static_cast<double>(cost.steps_inter_node);
  const double inside = static_cast<double>(cost.steps) - between;
  double ns = costs.launch_ns + inside * alpha_ns(0, machine.node_latency_ns) +
              between * alpha_ns(1, between_latency);
  ns += (cost.bytes_sent - cost.bytes_sent_inter_node) * ns_per_byte(0, machine.node_gb_s);
  if (cost.bytes_sent_inter_node > 0)
    ns += cost.bytes_sent_inter_node * ns_per_byte(1, machine.nic_gb_s);
  if (machine.reduce_gb_s > 0) ns += cost.bytes_reduced / (machine.reduce_gb_s * request.channels);
  return ns / 1000;
}

Result<CollectiveResult> simulate_collective(const Machine& machine, const algorithm::Entry& entry,
                                             const CollectiveCall& call,
                                             const CollectiveOptions& options) {
  UNISONO_TRY(check_call(machine, call.request.placement, options));
  UNISONO_ASSIGN(const plan::Header header, algorithm::make_header(entry, call.request));
  EntryPrograms programs(machine, entry, call.request);
  UNISONO_ASSIGN(CollectiveResult result, simulate(machine, header, call.request.placement,
                                                   call.count, call.type, options, programs));
  const double block_bytes =
      static_cast<double>(call.count) * static_cast<double>(size_bytes(call.type));
  result.closed_form_us =
      closed_form_us(machine, call.request, entry.cost(call.request, block_bytes));
  return result;
}

Result<CollectiveResult> simulate_plan(const Machine& machine, const plan::Plan& plan,
                                       const topo::Placement& placement, std::int64_t count,
                                       DataType type, const CollectiveOptions& options) {
  UNISONO_TRY(check_call(machine, placement, options));
  UNISONO_TRY(plan::check(plan, plan::format_limits()));
  if (plan.header.ranks != placement.ranks())
    return misuse("plan ", plan.header.name, " is for ", plan.header.ranks, " ranks, but ",
                  placement.ranks(), " are placed");
  PlanPrograms programs(machine, plan, placement);
  return simulate(machine, plan.header, placement, count, type, options, programs);
}

}  // namespace unisono::simulate
