// The simulator: machines and collectives on them.

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/settings.h"
#include "bind.h"
#include "comm/select/engine_model.h"
#include "convert.h"
#include "simulate/choose.h"
#include "simulate/machine_json.h"
#include "simulation.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

using simulate::CollectiveOptions;
using simulate::CollectiveResult;
using simulate::Machine;
using simulate::Progress;

CollectiveResult simulate_collective(const Machine& machine, const algorithm::Entry& algorithm,
                                     int ranks, int nodes, std::int64_t count,
                                     std::string_view type, std::string_view protocol, int channels,
                                     int root, std::string_view model, double noise,
                                     std::uint64_t seed, bool explain, int calls, bool collapse,
                                     std::uint64_t max_events, int timeline, Progress* progress) {
  const simulate::CollectiveCall call =
      collective_call(machine, algorithm, ranks, nodes, count, type, protocol, channels, root);
  const CollectiveOptions options{.model = model_of(model),
                                  .noise = noise,
                                  .seed = seed,
                                  .explain = explain,
                                  .calls = calls,
                                  .collapse = collapse,
                                  .max_events = max_events,
                                  .timeline = timeline};
  return watched(progress, [&](Progress& watch) {
    return simulate::simulate_collective(machine, algorithm, call, watched_by(options, watch));
  });
}

// Any plan, its ranks placed as a collective's.
CollectiveResult simulate_plan(const Machine& machine, const plan::Plan& plan, int nodes,
                               std::int64_t count, std::string_view type, std::string_view model,
                               bool explain, int calls, bool collapse, std::uint64_t max_events,
                               int timeline, Progress* progress) {
  const topo::Placement placement = take(simulate::place(machine, plan.header.ranks, nodes));
  const CollectiveOptions options{.model = model_of(model),
                                  .explain = explain,
                                  .calls = calls,
                                  .collapse = collapse,
                                  .max_events = max_events,
                                  .timeline = timeline};
  const DataType element = data_type_of(type);
  return watched(progress, [&](Progress& watch) {
    return simulate::simulate_plan(machine, plan, placement, count, element,
                                   watched_by(options, watch));
  });
}

// Algorithm, protocol, stated time, simulated time and that in flows in microseconds, and the
// verdict.
using CandidateTuple =
    std::tuple<std::string_view, std::string_view, double, double, double, std::string_view>;

std::string_view name_of(simulate::Candidate::Verdict verdict) {
  switch (verdict) {
    case simulate::Candidate::Verdict::simulated:
      return "simulated";
    case simulate::Candidate::Verdict::slower:
      return "slower";
    default:
      return "too_large";
  }
}

// Which plans an engine runs, with this process's settings; empty: all.
std::shared_ptr<const comm::EngineModel> engine_model(std::string_view engine, int ranks_on_a_node,
                                                      int sms) {
  if (engine.empty()) return nullptr;
  if (engine == "host")
    return comm::host_model(
        transport::FifoOptions::from_settings(environment_settings()).shared_by(ranks_on_a_node));
  if (engine == "gpu")
    return comm::device_model(engine::gpu::Options::from_settings(environment_settings()), sms, {});
  raise(misuse("there is no engine '", engine, "'; write host or gpu"));
}

std::vector<CandidateTuple> choose_plan(const Machine& machine, std::string_view collective,
                                        int ranks, int nodes, std::int64_t count,
                                        std::string_view type,
                                        const std::vector<std::string>& protocols, int channels,
                                        int root, std::string_view engine, int sms) {
  simulate::CollectiveCall call;
  call.request.collective = collective_of(collective);
  call.request.placement = take(simulate::place(machine, ranks, nodes));
  call.request.root = root;
  call.request.channels = channels;
  call.count = count;
  call.type = data_type_of(type);
  simulate::ChoiceOptions options;
  for (const std::string& protocol : protocols) options.protocols.push_back(protocol_of(protocol));
  const auto model = engine_model(engine, call.request.placement.max_ranks_on_a_node(), sms);
  if (model)
    options.runs = [&](const algorithm::Entry& entry, const algorithm::Request& request) {
      return model->runs(entry, request);
    };
  std::vector<CandidateTuple> out;
  const auto found = watched(nullptr, [&](Progress& watch) {
    options.progress = &watch;
    return simulate::choose_plan(machine, call, options);
  });
  for (const simulate::Candidate& one : found)
    out.emplace_back(one.entry->name, name(one.protocol), one.stated_us, one.time_us, one.flows_us,
                     name_of(one.verdict));
  return out;
}

// Rank or, for a NIC, node; the NIC's number or -1; bytes sent; the share of the time it is busy
// sending and receiving. Ranks that stand for others are shown for themselves.
using PortTuple = std::tuple<int, int, std::int64_t, double, double>;

std::vector<PortTuple> ports(const CollectiveResult& self) {
  const auto finished = static_cast<double>(std::max<simulate::Time>(self.run.finished, 1));
  std::vector<PortTuple> out;
  for (const simulate::ShownPort& shown : self.ports) {
    const simulate::PortUse& use = self.run.ports[shown.port];
    out.emplace_back(shown.owner, shown.nic, use.bytes_sent,
                     static_cast<double>(use.sending) / finished,
                     static_cast<double>(use.receiving) / finished);
  }
  return out;
}

// Level, unit, number of the link, whether it leads up, GB/s, bytes.
using LinkTuple = std::tuple<int, int, int, bool, double, double>;

std::vector<LinkTuple> links(const CollectiveResult& self) {
  std::vector<LinkTuple> out;
  for (const simulate::LinkUse& use : self.run.links)
    out.emplace_back(use.level, use.unit, use.number, use.up, use.capacity_gb_s, use.bytes);
  return out;
}

}  // namespace

CollectiveOptions watched_by(CollectiveOptions options, Progress& progress) {
  options.progress = &progress;
  return options;
}

simulate::NetworkModel model_of(std::string_view wanted) {
  std::vector<std::string> known;
  for (int i = 0; i < simulate::network_model_count; ++i) {
    const auto model = static_cast<simulate::NetworkModel>(i);
    if (name(model) == wanted) return model;
    known.emplace_back(name(model));
  }
  raise(misuse("there is no network model '", wanted, "'", name_hint(wanted, known)));
}

simulate::CollectiveCall collective_call(const Machine& machine, const algorithm::Entry& algorithm,
                                         int ranks, int nodes, std::int64_t count,
                                         std::string_view type, std::string_view protocol,
                                         int channels, int root) {
  simulate::CollectiveCall call;
  call.request.collective = algorithm.collective;
  call.request.placement = take(simulate::place(machine, ranks, nodes));
  call.request.root = root;
  call.request.protocol = protocol_of(protocol);
  call.request.channels = channels;
  call.count = count;
  call.type = data_type_of(type);
  return call;
}

nb::dict shares(const simulate::ExecutorResult& run) {
  nb::dict out;
  for (int i = 0; i < simulate::share_count; ++i)
    out[nb::str(text(name(static_cast<simulate::Share>(i))).c_str())] =
        simulate::to_us(run.path.shares[static_cast<std::size_t>(i)]);
  return out;
}

std::vector<HopTuple> hops(const simulate::ExecutorResult& run) {
  std::vector<HopTuple> out;
  for (std::uint32_t i = run.path.last_hop; i != simulate::no_hop; i = run.hops[i].before) {
    const simulate::Hop& hop = run.hops[i];
    out.emplace_back(hop.from, hop.to, hop.bytes, simulate::to_us(hop.sent),
                     simulate::to_us(hop.arrived));
  }
  std::reverse(out.begin(), out.end());
  return out;
}

void bind_simulate(nb::module_& module) {
  nb::class_<Progress>(module, "SimulationProgress")
      .def(nb::init<>())
      .def_prop_ro("done", &Progress::done)
      .def_prop_ro("total", &Progress::total)
      .def("stop", &Progress::stop);
  nb::class_<Machine>(module, "Machine")
      .def_static(
          "from_json", [](std::string_view json) { return take(simulate::read_machine(json)); },
          nb::arg("json"))
      .def_static(
          "log_gops",
          [](int ranks, double latency_ns, double overhead_ns, double gap_ns,
             double gap_ns_per_byte, double overhead_ns_per_byte) {
            simulate::Machine machine = simulate::log_gops_machine(
                ranks, {latency_ns, overhead_ns, gap_ns, gap_ns_per_byte, overhead_ns_per_byte});
            check(simulate::check(machine));
            return machine;
          },
          nb::arg("ranks"), nb::kw_only(), nb::arg("latency_ns"), nb::arg("overhead_ns"),
          nb::arg("gap_ns"), nb::arg("gap_ns_per_byte"), nb::arg("overhead_ns_per_byte"))
      .def_ro("name", &Machine::name)
      .def_ro("nodes", &Machine::nodes)
      .def_ro("ranks_per_node", &Machine::ranks_per_node)
      .def_ro("node_gb_s", &Machine::node_gb_s)
      .def_ro("nic_gb_s", &Machine::nic_gb_s)
      .def_prop_ro("max_ranks", &Machine::max_ranks);
  nb::class_<CollectiveResult>(module, "SimulatedCollective")
      .def_prop_ro("time_us",
                   [](const CollectiveResult& self) { return simulate::to_us(self.run.finished); })
      .def_prop_ro(
          "first_us",
          [](const CollectiveResult& self) { return simulate::to_us(self.run.first_finished); })
      .def_prop_ro("last_rank", [](const CollectiveResult& self) { return self.run.last_rank; })
      .def_prop_ro("messages", [](const CollectiveResult& self) { return self.run.messages; })
      .def_prop_ro("steps", [](const CollectiveResult& self) { return self.run.steps; })
      .def_prop_ro("wire_bytes", [](const CollectiveResult& self) { return self.run.bytes; })
      .def_prop_ro("events", [](const CollectiveResult& self) { return self.run.events; })
      .def_prop_ro("path_messages",
                   [](const CollectiveResult& self) { return self.run.path.messages; })
      .def_prop_ro("path_messages_inter_node",
                   [](const CollectiveResult& self) { return self.run.path.messages_inter_node; })
      .def_prop_ro("shares", [](const CollectiveResult& self) { return shares(self.run); })
      .def_prop_ro("hops", [](const CollectiveResult& self) { return hops(self.run); })
      .def_prop_ro("ports", &ports)
      .def_prop_ro("links", &links)
      .def_ro("ranks", &CollectiveResult::ranks)
      .def_ro("nodes", &CollectiveResult::nodes)
      .def_ro("simulated_ranks", &CollectiveResult::simulated_ranks)
      .def_ro("not_collapsed", &CollectiveResult::not_collapsed)
      .def_ro("tiles", &CollectiveResult::tiles)
      .def_ro("largest_message_bytes", &CollectiveResult::largest_message_bytes)
      .def_ro("closed_form_us", &CollectiveResult::closed_form_us)
      .def_ro("node_port_bytes", &CollectiveResult::node_port_bytes)
      .def_ro("nic_bytes", &CollectiveResult::nic_bytes);
  module.def("simulate_collective", &simulate_collective, nb::arg("machine"), nb::arg("algorithm"),
             nb::kw_only(), nb::arg("ranks"), nb::arg("nodes") = 0, nb::arg("count"),
             nb::arg("type") = "float32", nb::arg("protocol") = "simple", nb::arg("channels") = 1,
             nb::arg("root") = 0, nb::arg("model") = "loggops", nb::arg("noise") = 0.0,
             nb::arg("seed") = 1, nb::arg("explain") = false, nb::arg("calls") = 1,
             nb::arg("collapse") = true, nb::arg("max_events") = std::uint64_t{1} << 36,
             nb::arg("timeline") = -1, nb::arg("progress") = nb::none());
  module.def("choose_plan", &choose_plan, nb::arg("machine"), nb::arg("collective"), nb::kw_only(),
             nb::arg("ranks"), nb::arg("nodes") = 0, nb::arg("count"), nb::arg("type") = "float32",
             nb::arg("protocols"), nb::arg("channels") = 1, nb::arg("root") = 0,
             nb::arg("engine") = "", nb::arg("sms") = 132);
  module.def("simulate_plan", &simulate_plan, nb::arg("machine"), nb::arg("plan"), nb::kw_only(),
             nb::arg("nodes") = 0, nb::arg("count"), nb::arg("type") = "float32",
             nb::arg("model") = "loggops", nb::arg("explain") = false, nb::arg("calls") = 1,
             nb::arg("collapse") = true, nb::arg("max_events") = std::uint64_t{1} << 36,
             nb::arg("timeline") = -1, nb::arg("progress") = nb::none());
}

}  // namespace unisono::python
