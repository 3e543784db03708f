// What a byte between nodes costs in CPU time: ranks are processes of one machine, each a node of
// its own, and all that they send goes through sockets. CPU time of all ranks, in user and system
// mode, over the bytes that arrive at all of them.
//
//   link_cpu_bench [ranks [bytes [calls]]]
//
// Settings (UNISONO_ALGORITHM and others) are those of the environment. Where ranks share cores, a
// rank that waits sleeps; what it spins before that counts, as it does in a program.

#include <sys/resource.h>
#include <unisono/communicator.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "processes.h"

namespace {

using namespace unisono;
using bench::die;
using bench::join;

struct Case {
  const char* name;
  std::function<Status(Communicator&, std::vector<float>& in, std::vector<float>& out)> call;
  double arriving_parts;  // of `bytes`, at all ranks, by the number of ranks
};

void check(const Status& status) {
  if (!status.ok()) die(status.error().describe());
}

// Every rank puts its block into everybody's output.
std::string put_plan(int ranks) {
  std::string out = "plan puts version 1\ncollective all_gather ranks " + std::to_string(ranks) +
                    "\nprotocol simple channels 1 in_place no\nchunks 1 input_blocks 1 "
                    "output_blocks " +
                    std::to_string(ranks) + "\nbytes 0..\n";
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string own = "output[" + std::to_string(rank) + "]\n";
    out += "\nrank " + std::to_string(rank) + "\n  block 0 channel 0\n    copy input[0] -> " + own;
    for (int step = 1; step < ranks; ++step) {
      const int to = (rank + step) % ranks, from = (rank + ranks - step) % ranks;
      out += "  block " + std::to_string(step) + " channel 0 send " + std::to_string(to) +
             " recv " + std::to_string(from) + "\n    put input[0] -> " + own +
             "    signal\n    wait\n";
    }
  }
  return out;
}

std::vector<Case> cases_of(int ranks) {
  const double others = ranks - 1;
  return {
      {"all_gather",
       [ranks](Communicator& comm, std::vector<float>& in, std::vector<float>& out) {
         return comm.all_gather(in.data(), out.data(),
                                static_cast<std::int64_t>(out.size()) / ranks, DataType::float32);
       },
       others},
      {"broadcast",
       [](Communicator& comm, std::vector<float>&, std::vector<float>& out) {
         return comm.broadcast(out.data(), out.data(), static_cast<std::int64_t>(out.size()),
                               DataType::float32, 0);
       },
       others},
      {"all_to_all",
       [ranks](Communicator& comm, std::vector<float>& in, std::vector<float>& out) {
         return comm.all_to_all(in.data(), out.data(),
                                static_cast<std::int64_t>(out.size()) / ranks, DataType::float32);
       },
       others},
      {"all_reduce",
       [](Communicator& comm, std::vector<float>& in, std::vector<float>& out) {
         return comm.all_reduce(in.data(), out.data(), static_cast<std::int64_t>(out.size()),
                                DataType::float32);
       },
       2 * others},
      // By a plan of puts, from its registration on.
      {"puts",
       [ranks](Communicator& comm, std::vector<float>& in, std::vector<float>& out) {
         return comm.all_gather(in.data(), out.data(),
                                static_cast<std::int64_t>(out.size()) / ranks, DataType::float32);
       },
       others}};
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int run(int rank, int ranks, std::size_t bytes, int calls, const std::string& url) {
  setenv("UNISONO_NODE", std::to_string(rank).c_str(), 1);
  Communicator comm = join(rank, ranks, url);
  std::vector<float> in(bytes / sizeof(float), 1), out(in.size(), 2);
  const std::vector<std::string> plans{put_plan(ranks)};
  for (const Case& one : cases_of(ranks)) {
    if (one.name == std::string_view("puts")) check(comm.register_plans(plans));
    for (int i = 0; i < 3; ++i) check(one.call(comm, in, out));
    check(comm.barrier());
    const double begin = cpu_seconds();
    for (int i = 0; i < calls; ++i) check(one.call(comm, in, out));
    double spent = cpu_seconds() - begin;
    check(comm.all_reduce(&spent, &spent, 1, DataType::float64));
    const double arrived = one.arriving_parts * static_cast<double>(bytes) * calls;
    if (rank == 0)
      std::printf("%-12s%12zu B %9.4f ns of CPU time a byte\n", one.name, bytes,
                  1e9 * spent / arrived);
    std::fflush(stdout);
  }
  return comm.destroy().ok() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int at, long long otherwise) {
    return argc > at ? std::atoll(argv[at]) : otherwise;
  };
  const int ranks = static_cast<int>(number(1, 2));
  const auto bytes = static_cast<std::size_t>(number(2, 16 << 20));
  const int calls = static_cast<int>(number(3, 20));
  if (ranks < 2 || bytes < 4096 || calls < 1) die("at least 2 ranks, 4096 bytes and a call");
  const bool is_good = bench::run_ranks(
      ranks, [&](int rank, const std::string& url) { return run(rank, ranks, bytes, calls, url); });
  return is_good ? 0 : 1;
}
