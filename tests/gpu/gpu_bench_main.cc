// How long plans take on GPUs, all ranks in one process: calls in a CUDA graph, the slowest rank's
// time by events. Arguments: ranks, slots, bytes of a slot, then rows "collective algorithm
// protocol channels bytes", `bytes` the larger of a rank's input and output. Protocol `zero_copy`
// is simple with all buffers mapped by all ranks; simple itself goes through slots.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/str.h"
#include "base/try.h"
#include "support/gpu_cluster.h"
#include "topo/placement.h"

namespace unisono::test {
namespace {

struct Row {
  Collective collective;
  std::string algorithm;
  Protocol protocol;
  int channels;
  std::uint64_t bytes;
};

constexpr int repeats = 7;

// Fewer calls in a graph where each is long.
int calls_of(std::uint64_t bytes) {
  return bytes <= (256 << 10) ? 100 : bytes <= (4 << 20) ? 20 : bytes <= (64 << 20) ? 5 : 2;
}

Result<double> time_us(GpuCluster& cluster, const Row& row) {
  const int ranks = cluster.ranks();
  UNISONO_ASSIGN(const algorithm::Entry* entry, algorithm::find(row.collective, row.algorithm));
  GpuCluster::Run run;
  run.entry = entry;
  run.request = {.collective = row.collective,
                 .placement = topo::Placement::single_node(ranks),
                 .protocol = row.protocol,
                 .channels = row.channels};
  run.problem = {.collective = row.collective, .ranks = ranks};
  UNISONO_ASSIGN(auto executions, cluster.make_executions(run));
  const bool has_blocks = row.collective != Collective::all_reduce &&
                          row.collective != Collective::broadcast &&
                          row.collective != Collective::reduce;
  const std::uint64_t block = has_blocks ? row.bytes / static_cast<unsigned>(ranks) : row.bytes;
  std::vector<sys::cuda::Memory> memory;
  std::vector<engine::Arguments> arguments;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto device = cluster.engine(rank).shared_device();
    for (int i = 0; i < 2; ++i) {
      UNISONO_ASSIGN(auto buffer, sys::cuda::Memory::allocate(device, row.bytes));
      memory.push_back(std::move(buffer));
    }
    arguments.push_back({.input = reinterpret_cast<void*>(memory[memory.size() - 2].address()),
                         .output = reinterpret_cast<void*>(memory.back().address()),
                         .count = static_cast<std::int64_t>(block / 2),
                         .type = DataType::bfloat16,
                         .options = {.timeout = std::chrono::seconds(10),
                                     .stream = cluster.stream(rank).handle()}});
  }
  UNISONO_TRY(cluster.launch(executions, arguments, cluster.all_ranks()));
  UNISONO_TRY(cluster.synchronize());
  const int calls = calls_of(row.bytes);
  UNISONO_ASSIGN(const auto graphs, cluster.capture(executions, arguments, calls));
  std::vector<sys::cuda::EventHandle*> events(static_cast<std::size_t>(2 * ranks));
  const auto record = [&](int which) {
    for (int rank = 0; rank < ranks; ++rank) {
      const sys::cuda::Current current(cluster.stream(rank).device());
      const auto& driver = cluster.stream(rank).device().driver();
      auto& event = events[static_cast<std::size_t>(2 * rank + which)];
      if (event == nullptr) driver.event_create(&event, 0);
      driver.event_record(event, cluster.stream(rank).handle());
    }
  };
  std::vector<double> times;
  for (int repeat = 0; repeat <= repeats; ++repeat) {
    record(0);
    UNISONO_TRY(cluster.launch_graphs(graphs));
    record(1);
    UNISONO_TRY(cluster.synchronize());
    // The rank that starts last waits for nobody: its time has no skew in it.
    float least = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const sys::cuda::Current current(cluster.stream(rank).device());
      const auto r = static_cast<std::size_t>(2 * rank);
      float ms = 0;
      cluster.stream(rank).device().driver().event_elapsed(&ms, events[r], events[r + 1]);
      least = rank == 0 ? ms : std::min(least, ms);
    }
    if (repeat > 0) times.push_back(1e3 * static_cast<double>(least) / calls);
  }
  cluster.destroy_graphs(graphs);
  std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
  return times[repeats / 2];
}

double bus_factor(Collective collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (collective == Collective::all_reduce) return 2 * others;
  return collective == Collective::broadcast || collective == Collective::reduce ? 1 : others;
}

int run(int argc, char** argv) {
  if (argc < 4 || usable_devices().empty()) {
    std::printf(
        "usage: gpu_bench ranks slots slot_bytes [collective algorithm protocol channels bytes]... "
        "on a "
        "machine with GPUs\n");
    return 1;
  }
  bool is_zero_copy = false;
  GpuCluster cluster(
      std::atoi(argv[1]),
      {.engine = {.slots = std::atoi(argv[2]), .slot_bytes = std::strtoull(argv[3], nullptr, 10)},
       .sees = [&](int, int) { return is_zero_copy; }});
  std::printf("%-16s %-12s %-8s %3s %12s %10s %8s\n", "collective", "algorithm", "proto", "ch",
              "bytes", "us", "GB/s bus");
  for (int i = 4; i + 4 < argc; i += 5) {
    const auto collective = collective_from_name(argv[i]);
    is_zero_copy = argv[i + 2] == std::string_view("zero_copy");
    const auto protocol = is_zero_copy ? Protocol::simple : protocol_from_name(argv[i + 2]);
    if (!collective || !protocol) {
      std::printf("row %d cannot be read\n", (i - 4) / 5);
      return 1;
    }
    const Row row{*collective, argv[i + 1], *protocol, std::atoi(argv[i + 3]),
                  std::strtoull(argv[i + 4], nullptr, 10)};
    const auto time = time_us(cluster, row);
    if (!time.ok()) {
      std::printf("%s %s: %s\n", argv[i], argv[i + 1], time.error().describe().c_str());
      continue;
    }
    std::printf(
        "%-16s %-12s %-8s %3d %12llu %10.2f %8.1f\n", argv[i], argv[i + 1], argv[i + 2],
        row.channels, static_cast<unsigned long long>(row.bytes), *time,
        1e-3 * static_cast<double>(row.bytes) * bus_factor(*collective, cluster.ranks()) / *time);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace unisono::test

int main(int argc, char** argv) { return unisono::test::run(argc, argv); }
