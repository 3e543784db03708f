// Measures small calls between nodes: their time, processor time, system calls and switches, next
// to a bare ping-pong of TCP over the same link.
//
//   unisono netbed run --rate 1gbit 2x1 build/test/small_bench [calls [BYTES...]]
//
// Each rank is a process that the launcher starts. Rank 0 prints means over all ranks. "hops" is
// the longest chain of messages of a call: what a call's time is divided by to compare it with a
// ping-pong's. System calls are counted where the library calls the C library, so the counts do
// not depend on the machine's speed but on how often a rank finds nothing.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unisono/communicator.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "../../tests/support/counted_calls.h"

namespace {

using namespace unisono;
using test::CountedCalls;
using Clock = std::chrono::steady_clock;

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "small_bench: %s\n", why.c_str());
  std::_Exit(1);
}

void require(const Status& status) {
  if (!status.ok()) die(status.error().describe());
}

struct Usage {
  double cpu_us = 0, voluntary = 0, forced = 0;
};

Usage usage_now() {
  rusage now{};
  ::getrusage(RUSAGE_SELF, &now);
  const auto us = [](const timeval& at) {
    return static_cast<double>(at.tv_sec) * 1e6 + static_cast<double>(at.tv_usec);
  };
  return {us(now.ru_utime) + us(now.ru_stime), static_cast<double>(now.ru_nvcsw),
          static_cast<double>(now.ru_nivcsw)};
}

// The system calls are those of the thread that makes the library's.
struct Measured {
  double us = 0;
  Usage usage;
  double sends = 0, receives = 0, looks = 0, waits = 0, yields = 0, usages = 0;
};

// Means over so many calls, of this rank.
Measured measure(int calls, const std::function<void()>& call) {
  const Usage before = usage_now();
  CountedCalls& counted = CountedCalls::of_this_thread();
  counted.reset();
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i) call();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const CountedCalls made = counted;
  const Usage after = usage_now();
  const auto mean = [calls](int all) { return static_cast<double>(all) / calls; };
  return {.us = seconds * 1e6 / calls,
          .usage = {(after.cpu_us - before.cpu_us) / calls,
                    (after.voluntary - before.voluntary) / calls,
                    (after.forced - before.forced) / calls},
          .sends = mean(made.sends),
          .receives = mean(made.receives),
          .looks = mean(made.looks),
          .waits = mean(made.events + made.timeouts),
          .yields = mean(made.yields),
          .usages = mean(made.usages)};
}

void print_head() {
  std::printf("%-16s%7s%6s%10s%9s%8s%8s%8s%8s%8s%8s%9s%9s%8s\n", "", "size", "hops", "us", "us/hop",
              "cpu us", "sends", "recvs", "looks", "waits", "yields", "usages", "switches",
              "forced");
}

// The mean over all ranks, which all call this.
void print_mean(Communicator& comm, const char* name, std::size_t bytes, int hops, Measured of) {
  std::array<double, 10> values{
      of.us,    of.usage.cpu_us, of.sends,  of.receives,        of.looks,
      of.waits, of.yields,       of.usages, of.usage.voluntary, of.usage.forced};
  require(comm.all_reduce(values.data(), values.data(), std::int64_t{values.size()},
                          DataType::float64));
  if (comm.rank() != 0) return;
  for (double& value : values) value /= comm.size();
  std::printf("%-16s%7zu%6d%10.1f%9.1f%8.1f", name, bytes, hops, values[0], values[0] / hops,
              values[1]);
  for (std::size_t i = 2; i < values.size(); ++i)
    std::printf(i == 8 ? "%9.2f" : i == 9 ? "%9.2f" : "%8.2f", values[i]);
  std::printf("\n");
  std::fflush(stdout);
}

// A TCP connection between ranks 0 and 1 that is none of the library's.
int connect_pair(Communicator& comm) {
  const char* const own = std::getenv("UNISONO_INTERFACE");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (inet_pton(AF_INET, own != nullptr ? own : "127.0.0.1", &address.sin_addr) != 1)
    die("UNISONO_INTERFACE is not an IPv4 address");
  socklen_t bytes = sizeof address;
  int out = -1;
  int listener = -1;
  if (comm.rank() == 0) {
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
        listen(listener, 1) != 0 ||
        getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
      die("cannot listen");
  }
  require(comm.broadcast(&address, &address, std::int64_t{sizeof address}, DataType::uint8, 0));
  if (comm.rank() == 0) {
    out = accept(listener, nullptr, nullptr);
    close(listener);
  } else if (comm.rank() == 1) {
    out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(out, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) out = -1;
  }
  if (comm.rank() < 2 && out < 0) die("cannot connect");
  const int on = 1;
  if (out >= 0) setsockopt(out, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return out;
}

// One message there and one back; `flags`: 0 blocks in recv(), MSG_DONTWAIT polls.
void ping_pong(int rank, int socket, std::vector<std::byte>& bytes, int flags) {
  for (const bool sends : {rank == 0, rank != 0}) {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t moved =
          sends ? send(socket, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL)
                : recv(socket, bytes.data() + done, bytes.size() - done, flags);
      if (moved > 0)
        done += static_cast<std::size_t>(moved);
      else if (moved == 0 || errno != EAGAIN)
        die("the bare connection has ended");
    }
  }
}

int log2_above(int ranks) {
  int out = 0;
  while ((1 << out) < ranks) ++out;
  return std::max(out, 1);
}

}  // namespace

int main(int argc, char** argv) {
  const int calls = argc > 1 ? std::atoi(argv[1]) : 2000;
  std::vector<std::size_t> sizes;
  for (int i = 2; i < argc; ++i) sizes.push_back(static_cast<std::size_t>(std::atoll(argv[i])));
  if (sizes.empty()) sizes = {8, 4096};
  if (calls < 1 || *std::ranges::min_element(sizes) < sizeof(float))
    die("at least 1 call, of at least 4 bytes");
  auto joined = Communicator::init();
  if (!joined.ok()) die(joined.error().describe());
  Communicator& comm = *joined;
  const int ranks = comm.size();
  if (comm.rank() == 0) print_head();
  const int pair = ranks > 1 ? connect_pair(comm) : -1;
  for (const std::size_t bytes : sizes) {
    std::vector<std::byte> payload(bytes);
    for (const int flags : {0, int{MSG_DONTWAIT}}) {
      require(comm.barrier());
      Measured bare;
      if (pair >= 0) {
        const auto turn = [&] { ping_pong(comm.rank(), pair, payload, flags); };
        measure(calls / 10 + 1, turn);
        bare = measure(calls, turn);
      }
      require(comm.barrier());
      // Two ranks have measured it, and print_mean divides by all.
      const double share = ranks / 2.0;
      bare.us *= share;
      bare.usage = {bare.usage.cpu_us * share, bare.usage.voluntary * share,
                    bare.usage.forced * share};
      print_mean(comm, flags == 0 ? "bare, blocking" : "bare, polling", bytes, 2, bare);
    }
    const auto whole = static_cast<std::int64_t>(bytes / sizeof(float));
    const auto part = std::max<std::int64_t>(whole / ranks, 1);
    std::vector<float> input(static_cast<std::size_t>(whole) + 1),
        output(static_cast<std::size_t>(std::max(whole, part * ranks)) + 1);
    const auto run = [&](const char* name, int hops, const std::function<Status()>& call) {
      measure(calls / 10 + 1, [&] { require(call()); });
      require(comm.barrier());
      const Measured took = measure(calls, [&] { require(call()); });
      print_mean(comm, name, bytes, hops, took);
    };
    run("send and receive", 2, [&]() -> Status {
      const int peer = comm.rank() ^ 1;
      if (peer >= ranks) return {};
      for (const bool sends : {comm.rank() < peer, comm.rank() > peer}) {
        auto status = sends ? comm.send(input.data(), whole, DataType::float32, peer)
                            : comm.recv(output.data(), whole, DataType::float32, peer);
        if (!status.ok()) return status;
      }
      return {};
    });
    run("all_gather", ranks - 1,
        [&] { return comm.all_gather(input.data(), output.data(), part, DataType::float32); });
    run("all_reduce", log2_above(ranks),
        [&] { return comm.all_reduce(input.data(), output.data(), whole, DataType::float32); });
  }
  if (pair >= 0) close(pair);
  return comm.destroy().ok() ? 0 : 1;
}
