// An 8-byte put with a signal over libfabric, beside the same writes in a bare loop over libfabric.
//
// Two processes of this host, provider tcp;ofi_rxm over the loopback. Half a round trip, the median
// of a batch; of several batches, which take turns, the best counts: other programs on the machine
// can only add time. The bare loop injects 8 bytes with completion data and reads the completion
// queue, with nothing in between.
//
//   ofi_bench

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/key.h"
#include "base/wire.h"
#include "transport/ofi/endpoint.h"
#include "transport/ofi/transport.h"

namespace {

using namespace unisono;
using namespace unisono::transport;
using Clock = std::chrono::steady_clock;

constexpr const char* provider = "tcp;ofi_rxm";
constexpr const char* host = "127.0.0.1";
constexpr int batches = 10;
constexpr int round_trips = 2000;
constexpr std::size_t bytes = 8;

template <class T>
T must(Result<T> result) {
  if (result.ok()) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.error().describe().c_str());
  std::_Exit(1);
}

void must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.error().describe().c_str());
  std::_Exit(1);
}

// Tells the other process bytes, and hears as many.
std::string swap_names(const std::array<int, 2>& pipes, const std::string& mine) {
  std::string theirs(mine.size(), '\0');
  if (write(pipes[1], mine.data(), mine.size()) != static_cast<ssize_t>(mine.size()) ||
      read(pipes[0], theirs.data(), theirs.size()) != static_cast<ssize_t>(theirs.size()))
    std::_Exit(2);
  return theirs;
}

class BareLoop {
 public:
  explicit BareLoop(const std::array<int, 2>& pipes)
      : endpoint_(must(ofi::Endpoint::open(host, provider))),
        memory_(must(endpoint_->share(reinterpret_cast<std::byte*>(&landed_), bytes))) {
    std::string mine = endpoint_->name();
    mine.append(reinterpret_cast<const char*>(&memory_.key), 8);
    mine.append(reinterpret_cast<const char*>(&memory_.address), 8);
    const std::string theirs = swap_names(pipes, mine);
    const std::size_t name_bytes = theirs.size() - 16;
    write_.to = must(endpoint_->insert(std::string_view(theirs).substr(0, name_bytes)));
    std::memcpy(&write_.key, theirs.data() + name_bytes, 8);
    std::memcpy(&write_.address, theirs.data() + name_bytes + 8, 8);
    write_.source = reinterpret_cast<const std::byte*>(&source_);
    write_.bytes = bytes;
    write_.immediate = puts_;
  }
  void put() {
    while (must(endpoint_->inject(write_)) == ofi::Posted::later) look();
    write_.immediate = ++puts_;
  }
  void wait() {
    while (!look()) {
    }
  }

 private:
  bool look() {
    fi_cq_data_entry entry{};
    if (endpoint_->read({&entry, 1}) != 1) return false;
    return (entry.flags & FI_REMOTE_CQ_DATA) != 0;
  }

  std::uint64_t landed_ = 0;
  std::uint64_t source_ = 0;
  std::unique_ptr<ofi::Endpoint> endpoint_;
  ofi::RegisteredMemory memory_;
  ofi::Write write_;
  std::uint32_t puts_ = 0;
};

class Puts {
 public:
  Puts(const std::array<int, 2>& pipes, int self)
      : transport_(must(ofi::make_transport(
            {.key = derive_key(as_bytes_of("bench"), "bench"), .interface = {}}, provider))) {
    const std::string address = swap_names(pipes, transport_->address());
    connection_ = must(transport_->connect({.key = {},
                                            .ranks = 2,
                                            .self = self,
                                            .peer = 1 - self,
                                            .peer_address = address,
                                            .geometry = {.region_bytes = 4096, .signals = 1}}));
    while (!must(connection_->ready())) must(transport_->progress());
  }
  void put() {
    ++sent_;
    if (!must(connection_->try_put(&sent_, bytes, 0, {0, sent_}))) std::_Exit(3);
  }
  void wait() {
    ++heard_;
    while (connection_->signals()[0].load(std::memory_order_acquire) < heard_)
      must(connection_->progress());
  }

 private:
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Connection> connection_;
  std::uint64_t sent_ = 0;
  std::uint64_t heard_ = 0;
};

// Half a round trip in microseconds, as rank 0 sees it.
template <class Side>
double measure(Side& side, int self) {
  std::vector<double> times;
  for (int i = 0; i < round_trips; ++i) {
    const auto begin = Clock::now();
    if (self == 0) side.put();
    side.wait();
    if (self == 1) side.put();
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count() * 1e6 / 2);
  }
  std::ranges::nth_element(times, times.begin() + round_trips / 2);
  return times[round_trips / 2];
}

void run(const std::array<int, 2>& pipes, int self) {
  BareLoop bare(pipes);
  Puts puts(pipes, self);
  double best_bare = 1e9, best_put = 1e9;
  for (int batch = 0; batch < batches; ++batch) {
    best_bare = std::min(best_bare, measure(bare, self));
    best_put = std::min(best_put, measure(puts, self));
  }
  if (self != 0) return;
  std::printf("what                                   us one way\n");
  std::printf("bare loop over libfabric, 8 bytes      %10.2f\n", best_bare);
  std::printf("put of 8 bytes with a signal           %10.2f\n", best_put);
  std::printf("ratio                                  %10.2f\n", best_put / best_bare);
}

}  // namespace

int main() {
  int there[2], back[2];
  if (pipe(there) != 0 || pipe(back) != 0) return 1;
  const pid_t child = fork();
  if (child == 0) {
    run({there[0], back[1]}, 1);
    std::_Exit(0);
  }
  run({back[0], there[1]}, 0);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}
