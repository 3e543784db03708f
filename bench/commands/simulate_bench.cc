// How fast the simulator is, and how much memory it takes: rings over 64 ... 1,024 ranks without
// collapsing them, and over up to 100,000 ranks collapsed. Seconds are of this process's CPU time.
//
//   simulate_bench [--json]

#include <sys/resource.h>

#include <cstdio>
#include <cstring>
#include <ctime>

#include "simulate/collective.h"

namespace {

using namespace unisono;

double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// Of this process: others on the machine do not count.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Run {
  const char* what;
  Collective collective;
  int ranks;
  bool collapse;
  simulate::NetworkModel model;
};

int show(const Run& run, bool json) {
  simulate::Machine machine = simulate::log_gops_machine(
      1, {.latency_ns = 3700, .overhead_ns = 200, .gap_ns = 5, .gap_ns_per_byte = 0.04});
  machine.nodes = run.ranks;
  machine.levels.push_back({.name = "network", .nodes = run.ranks, .latency_ns = 3700});
  machine.nic_gb_s = 25;
  simulate::CollectiveCall call;
  call.request.collective = run.collective;
  call.request.placement = topo::Placement::uniform(run.ranks, 1);
  call.count = run.collective == Collective::all_reduce ? std::int64_t{run.ranks} * 1024 : 1024;
  const auto entry = algorithm::find(run.collective, "ring");
  if (!entry.ok()) return 1;
  const double start = cpu_seconds();
  const auto result = simulate::simulate_collective(machine, **entry, call,
                                                    {.model = run.model, .collapse = run.collapse});
  const double seconds = cpu_seconds() - start;
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    return 1;
  }
  const auto messages = static_cast<double>(result->run.messages);
  // Sending, arriving and receiving: what other simulators count, whether queued or not.
  const double events = 3 * messages;
  if (json) {
    std::printf(
        "{\"run\": \"%s\", \"model\": \"%s\", \"ranks\": %d, \"simulated\": %d, "
        "\"messages\": %.0f, \"queued_events\": %llu, \"seconds\": %.4f, "
        "\"messages_per_s\": %.0f, \"events_per_s\": %.0f, \"pending_events\": %zu, "
        "\"pending_messages\": %zu, \"peak_mib\": %.1f, \"time_us\": %.3f}\n",
        run.what, std::string(name(run.model)).c_str(), run.ranks, result->simulated_ranks,
        messages, static_cast<unsigned long long>(result->run.events), seconds, messages / seconds,
        events / seconds, result->run.pending_events, result->run.pending_messages, peak_mib(),
        simulate::to_us(result->run.finished));
    return 0;
  }
  std::printf("%-22s %-10s %7d %9d %10.0f %8.3f %8.2f %8.2f %9.1f %14.3f\n", run.what,
              std::string(name(run.model)).c_str(), run.ranks, result->simulated_ranks, messages,
              seconds, messages / seconds / 1e6, events / seconds / 1e6, peak_mib(),
              simulate::to_us(result->run.finished));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool json = argc > 1 && std::strcmp(argv[1], "--json") == 0;
  if (!json)
    std::printf("%-22s %-10s %7s %9s %10s %8s %8s %8s %9s %14s\n", "run", "model", "ranks",
                "simulated", "messages", "seconds", "Mmsg/s", "Mevent/s", "peak MiB", "time us");
  using simulate::NetworkModel;
  int failed = 0;
  for (const int ranks : {64, 256, 1024})
    failed |= show(
        {"ring_all_reduce", Collective::all_reduce, ranks, false, NetworkModel::log_gops}, json);
  failed |=
      show({"ring_all_reduce", Collective::all_reduce, 256, false, NetworkModel::flows}, json);
  for (const int ranks : {1024, 10'000, 100'000})
    failed |= show({"ring_all_reduce", Collective::all_reduce, ranks, true, NetworkModel::log_gops},
                   json);
  for (const int ranks : {10'000, 100'000})
    failed |= show({"ring_all_gather", Collective::all_gather, ranks, true, NetworkModel::log_gops},
                   json);
  return failed;
}
