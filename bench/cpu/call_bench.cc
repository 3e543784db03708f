// What one call of the C++ API costs at small and middle sizes: ranks are processes of one machine,
// each pinned to a core of its own while there are cores. Back-to-back calls, the median of
// batches.
//
//   call_bench [ranks [largest_bytes [collective [smallest_bytes [factor]]]]]
//
// Without a collective: all but queued_all_reduce, whose calls wait for their turn behind a
// receive. Settings (UNISONO_ALGORITHM and others) are those of the environment.

#include <sched.h>
#include <sys/mman.h>
#include <unisono/communicator.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "processes.h"

namespace {

using namespace unisono;
using bench::die;
using bench::join;
using Clock = std::chrono::steady_clock;

constexpr int most_batches = 15, least_batches = 5;
constexpr double batch_seconds = 0.004;
constexpr double most_seconds = 0.25;  // of all batches, where a call takes long

struct Buffers {
  const float* input;
  float* output;
};

// A receive that is under way until the end: no call runs at once, each goes through the queue.
std::optional<Work> under_way;

Status all_reduce_in_the_queue(Communicator& comm, Buffers at, std::int64_t count) {
  if (!under_way) {
    static std::byte unused;
    const Message receive{.is_send = false,
                          .recv_data = &unused,
                          .count = 1,
                          .type = DataType::uint8,
                          .peer = any_source};
    auto work = comm.submit(std::span(&receive, 1));
    if (!work.ok()) return work.take_error();
    under_way = std::move(work).value();
  }
  return comm.all_reduce(at.input, at.output, count, DataType::float32);
}

struct Case {
  const char* name;
  // Bytes are those of the larger of input and output.
  std::function<Status(Communicator&, Buffers, std::int64_t count)> call;
  bool divides;
  bool only_if_asked = false;
};

const Case cases[] = {
    {"broadcast",
     [](Communicator& comm, Buffers at, std::int64_t count) {
       return comm.broadcast(at.output, at.output, count, DataType::float32, 0);
     },
     false},
    {"all_reduce",
     [](Communicator& comm, Buffers at, std::int64_t count) {
       return comm.all_reduce(at.input, at.output, count, DataType::float32);
     },
     false},
    {"all_gather",
     [](Communicator& comm, Buffers at, std::int64_t count) {
       return comm.all_gather(at.input, at.output, count, DataType::float32);
     },
     true},
    {"reduce_scatter",
     [](Communicator& comm, Buffers at, std::int64_t count) {
       return comm.reduce_scatter(at.input, at.output, count, DataType::float32);
     },
     true},
    {"all_to_all",
     [](Communicator& comm, Buffers at, std::int64_t count) {
       return comm.all_to_all(at.input, at.output, count, DataType::float32);
     },
     true},
    {"send_recv",
     [](Communicator& comm, Buffers at, std::int64_t count) {
       const int peer = comm.rank() ^ 1;
       if (peer >= comm.size()) return Status();
       const bool first = comm.rank() < peer;
       for (const bool sends : {first, !first}) {
         auto status = sends ? comm.send(at.input, count, DataType::float32, peer)
                             : comm.recv(at.output, count, DataType::float32, peer);
         if (!status.ok()) return status;
       }
       return Status();
     },
     false},
    {"queued_all_reduce", all_reduce_in_the_queue, false, true},
};

void pin(int rank) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<unsigned>(rank) % std::thread::hardware_concurrency(), &cores);
  sched_setaffinity(0, sizeof cores, &cores);
}

double measure(Communicator& comm, const Case& one, Buffers at, std::int64_t count) {
  const auto batch = [&](int calls) {
    if (!comm.barrier().ok()) die("barrier failed");
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i)
      if (auto status = one.call(comm, at, count); !status.ok()) die(status.error().describe());
    return std::chrono::duration<double>(Clock::now() - begin).count() / calls;
  };
  // All ranks must make the same number of calls.
  const auto slowest = [&](double time) {
    if (!comm.all_reduce(&time, &time, 1, DataType::float64, ReduceOperation::max).ok())
      die("all_reduce failed");
    return time;
  };
  batch(2);
  double guess = slowest(batch(3));
  // Memory of a slot is reserved at its first use: a guess from such calls is too long.
  if (guess < batch_seconds / 4) batch(64);
  guess = slowest(batch(3));
  if (guess < batch_seconds / 40) guess = slowest(batch(20));
  const int calls = std::clamp(static_cast<int>(batch_seconds / guess), 1, 5000);
  const int batches =
      std::clamp(static_cast<int>(most_seconds / guess / calls), least_batches, most_batches);
  std::vector<double> times;
  for (int i = 0; i < batches; ++i) times.push_back(batch(calls));
  std::ranges::nth_element(times, times.begin() + batches / 2);
  return slowest(times[static_cast<std::size_t>(batches / 2)]) * 1e6;
}

struct Sizes {
  std::size_t smallest, largest, factor;  // factor 0: 8 up to 1 KiB, then 2
};

int run(int rank, int ranks, const Sizes& sizes, const std::string& only, const std::string& url) {
  if (ranks <= static_cast<int>(std::thread::hardware_concurrency())) pin(rank);
  Communicator comm = join(rank, ranks, url);
  std::vector<float> input(sizes.largest / sizeof(float) + 16, 1), output(input.size(), 2);
  for (const Case& one : cases) {
    if (only.empty() ? one.only_if_asked : only != one.name) continue;
    const auto factor = [&](std::size_t bytes) -> std::size_t {
      return sizes.factor > 0 ? sizes.factor : bytes < 1024 ? 8 : 2;
    };
    for (std::size_t bytes = sizes.smallest; bytes <= sizes.largest; bytes *= factor(bytes)) {
      const auto parts = static_cast<std::size_t>(one.divides ? ranks : 1);
      const auto count = static_cast<std::int64_t>(bytes / sizeof(float) / parts);
      double us = measure(comm, one, {input.data(), output.data()}, count);
      if (std::string(one.name) == "send_recv") us /= 2;
      if (rank == 0) std::printf("%-16s%10zu B %10.3f us\n", one.name, bytes, us);
      std::fflush(stdout);
    }
  }
  if (!under_way) return comm.destroy().ok() ? 0 : 1;
  comm.abort();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const auto number = [&](int at, long long otherwise) {
    return static_cast<std::size_t>(argc > at ? std::atoll(argv[at]) : otherwise);
  };
  const Sizes sizes{.smallest = number(4, 8), .largest = number(2, 65536), .factor = number(5, 0)};
  if (ranks < 1 || sizes.smallest < 1 || (argc > 5 && sizes.factor < 2))
    die("at least 1 rank, calls of at least 1 byte, a factor of at least 2");
  const std::string only = argc > 3 ? argv[3] : "";
  const bool is_good = bench::run_ranks(
      ranks, [&](int rank, const std::string& url) { return run(rank, ranks, sizes, only, url); });
  return is_good ? 0 : 1;
}
