// What the conformance suite and the tests of the fifos stand on: transports to choose from, pairs
// of connected ends, and waiting with a deadline.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/key.h"
#include "base/str.h"
#include "base/wire.h"
#include "transport/transport.h"

namespace unisono::test {

using transport::Connection;
using transport::ConnectionKey;
using transport::ConnectionRequest;
using transport::Fault;
using transport::Geometry;
using transport::RemoteMemory;
using transport::Transport;
using transport::TransportOptions;

struct Factory {
  std::string name;
  std::function<Result<std::unique_ptr<Transport>>(const TransportOptions&)> make;
  bool across_processes = false;
  // Whether it joins ranks that are threads of one process, too.
  bool inside_a_process = true;
  // What its connections declare, and are held to: puts_in_place(), can_get() and
  // can_read_peer().
  bool puts_in_place = true;
  bool gets = true;
  bool reads_peer = false;
  // Whether it does these across processes only where the machine lets one have the other's memory.
  bool needs_cross_memory = false;
  bool links_devices = false;  // device_link()
  // Whether a card pins what its peers write to, so that all of it is there at once.
  bool pins_memory = false;
};

inline void PrintTo(const Factory& factory, std::ostream* out) { *out << factory.name; }

// All transports, in the variants that must pass.
const std::vector<Factory>& factories();

// Those that have all of these.
template <class... Properties>
std::vector<Factory> factories_with(Properties... properties) {
  std::vector<Factory> chosen;
  for (const Factory& factory : factories())
    if (((factory.*properties) && ...)) chosen.push_back(factory);
  return chosen;
}

// Those that tests of one process can take.
inline std::vector<Factory> factories_inside_a_process() {
  return factories_with(&Factory::inside_a_process);
}

inline std::string factory_name(const testing::TestParamInfo<Factory>& info) {
  return info.param.name;
}

// No test's job meets another's, also when two test programs run at once.
inline std::string fresh_job() {
  static std::atomic<int> count{0};
  return str("test", getpid(), "n", count++);
}

class Deadline {
 public:
  explicit Deadline(int seconds = 60)
      : end_(std::chrono::steady_clock::now() + std::chrono::seconds(seconds)) {}
  bool passed() const { return std::chrono::steady_clock::now() > end_; }

 private:
  std::chrono::steady_clock::time_point end_;
};

// Calls `step` until it returns true; false when the deadline passed before.
template <class Step>
bool eventually(Step step, int seconds = 60) {
  const Deadline deadline(seconds);
  while (!step()) {
    if (deadline.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

// Transports of the ranks 0 to n-1 of one job, in this process.
struct Job {
  Job(const Factory& factory, int count, const std::string& name = fresh_job()) {
    for (int rank = 0; rank < count; ++rank) {
      auto made = factory.make(options(name));
      EXPECT_TRUE(made.ok()) << made.error().describe();
      transports.push_back(std::move(*made));
    }
  }
  // Of communicators with more ranks than have transports here, so that others can be blamed.
  static constexpr int ranks = 32;
  static Key key(const std::string& job, const std::string& secret = "the job's secret") {
    return derive_key(as_bytes_of(secret), "test", {as_bytes_of(job)});
  }
  static TransportOptions options(const std::string& job,
                                  const std::string& secret = "the job's secret") {
    return {.key = key(job, secret), .interface = {}};
  }
  Result<std::unique_ptr<Connection>> connect(int self, int peer, const Geometry& geometry,
                                              const ConnectionKey& key = {}) {
    const std::string address = transports[static_cast<std::size_t>(peer)]->address();
    return transports[static_cast<std::size_t>(self)]->connect({.key = key,
                                                                .ranks = ranks,
                                                                .self = self,
                                                                .peer = peer,
                                                                .peer_address = address,
                                                                .geometry = geometry});
  }
  void progress() {
    for (auto& transport : transports) {
      const auto status = transport->progress();
      EXPECT_TRUE(status.ok()) << status.error().describe();
    }
  }

  std::vector<std::unique_ptr<Transport>> transports;
};

inline std::unique_ptr<Connection> must(Result<std::unique_ptr<Connection>> made) {
  EXPECT_TRUE(made.ok()) << made.error().describe();
  return made.ok() ? std::move(*made) : nullptr;
}

// Whether an end is ready; an error fails the test.
inline bool is_ready(Connection& connection) {
  auto ready = connection.ready();
  EXPECT_TRUE(ready.ok()) << ready.error().describe();
  return ready.ok() && *ready;
}

// Two ends of one connection.
struct Pair {
  std::unique_ptr<Connection> a;  // rank 0
  std::unique_ptr<Connection> b;  // rank `peer`

  Pair() = default;
  Pair(Job& job, const Geometry& geometry, const ConnectionKey& key = {}, int peer = 1) {
    a = must(job.connect(0, peer, geometry, key));
    b = must(job.connect(peer, 0, geometry, key));
    EXPECT_TRUE(eventually([&] {
      job.progress();
      const bool ready = is_ready(*a);
      return is_ready(*b) && ready;
    }));
  }
};

// A pair for what goes into memory other than its regions.
inline std::unique_ptr<Pair> joined(Job& job, const ConnectionKey& key = {}) {
  return std::make_unique<Pair>(job, Geometry{.region_bytes = 1 << 16, .signals = 2}, key);
}

// What the peer's puts change of an end, by what maps it: the host's processors, or a GPU's. The
// GPU is the emulated one, whose memory this process loads and stores as its own.
inline std::byte* region_of(const Connection& end) {
  const transport::DeviceLink* const device = end.device_link();
  return device != nullptr ? reinterpret_cast<std::byte*>(device->region) : end.region();
}
inline const std::atomic<std::uint64_t>* signals_of(const Connection& end) {
  const transport::DeviceLink* const device = end.device_link();
  return device != nullptr ? reinterpret_cast<std::atomic<std::uint64_t>*>(device->signals)
                           : end.signals();
}

inline Status progress_all(std::initializer_list<Connection*> connections) {
  for (Connection* connection : connections)
    if (auto status = connection->progress(); !status.ok()) return status;
  return {};
}

// Puts, with progress of this end until the connection takes it.
template <class TryPut>
testing::AssertionResult until_taken(Connection& connection, TryPut try_put) {
  const Deadline deadline;
  for (;;) {
    Result<bool> taken = try_put();
    if (!taken.ok()) return testing::AssertionFailure() << taken.error().describe();
    if (*taken) return testing::AssertionSuccess();
    if (auto status = connection.progress(); !status.ok())
      return testing::AssertionFailure() << status.error().describe();
    if (deadline.passed()) return testing::AssertionFailure() << "not taken before the deadline";
    std::this_thread::yield();
  }
}

inline testing::AssertionResult put(Connection& connection, const void* source, std::size_t bytes,
                                    std::size_t offset, transport::Signal signal = {}) {
  return until_taken(connection, [&] { return connection.try_put(source, bytes, offset, signal); });
}

inline testing::AssertionResult put_to(Connection& connection, const RemoteMemory& memory,
                                       std::size_t offset, const void* source, std::size_t bytes,
                                       transport::Signal signal = {}) {
  return until_taken(connection,
                     [&] { return connection.try_put_to(memory, offset, source, bytes, signal); });
}

// What `end` exposes; none fails the test.
inline RemoteMemory must_expose(Connection& end, std::span<std::byte> memory) {
  auto exposed = end.expose(memory.data(), memory.size());
  EXPECT_TRUE(exposed.ok()) << exposed.error().describe();
  return exposed.ok() ? *exposed : RemoteMemory{};
}

inline testing::AssertionResult wait_for_signal(Connection& connection, int index,
                                                std::uint64_t value) {
  const Deadline deadline;
  while (signals_of(connection)[index].load(std::memory_order_acquire) < value) {
    if (auto status = connection.progress(); !status.ok())
      return testing::AssertionFailure() << status.error().describe();
    if (deadline.passed())
      return testing::AssertionFailure()
             << "signal " << index << " did not reach " << value << " before the deadline";
    std::this_thread::yield();
  }
  return testing::AssertionSuccess();
}

// Until every accepted put has left its source.
inline testing::AssertionResult wait_for_completion(Connection& connection) {
  const bool done = eventually([&] {
    const auto status = connection.progress();
    EXPECT_TRUE(status.ok()) << status.error().describe();
    return !status.ok() || connection.puts_completed() == connection.puts_started();
  });
  return done ? testing::AssertionSuccess() : testing::AssertionFailure() << "puts do not complete";
}

// Calls try_put(1), try_put(2) and so on, while the peer does not look, until one is not taken: how
// many were. Where `enough` are, they complete without the peer, so that nothing piles up here.
template <class TryPut>
std::uint64_t fill(Connection& end, std::uint64_t enough, TryPut try_put) {
  for (std::uint64_t number = 1; number <= enough; ++number) {
    const Result<bool> taken = try_put(number);
    EXPECT_TRUE(taken.ok()) << taken.error().describe();
    if (!taken.ok() || !*taken) return number - 1;
  }
  EXPECT_TRUE(wait_for_completion(end)) << "all are taken, and wait";
  return enough;
}

// Whether b's signal 0 becomes `value` although b does not look: where more puts than a wire may
// hold were all taken, nothing piles up on the way either.
inline bool arrives_unseen(Pair& pair, std::uint64_t value) {
  return eventually([&] {
    EXPECT_TRUE(pair.a->progress().ok());
    return signals_of(*pair.b)[0].load(std::memory_order_acquire) == value;
  });
}

// The error that a repeated `step` ends in.
template <class Step>
Error until_error(Step step) {
  Error told;
  EXPECT_TRUE(eventually([&] {
    Status status = step();
    if (status.ok()) return false;
    told = *status.take_error();
    return true;
  })) << "no error before the deadline";
  return told;
}

// An error of either end, as both look and `step` goes on.
template <class Step>
Error either_error(Pair& pair, Step step) {
  return until_error([&]() -> Status {
    if (auto status = step(); !status.ok()) return status;
    return progress_all({pair.b.get(), pair.a.get()});
  });
}

// Whether bytes have begun to land here, where there was 0: a look that is not ordered with them,
// and that no sanitizer need tell.
__attribute__((noinline, no_sanitize("thread"))) inline bool has_landed(const std::byte* there) {
  return *static_cast<const volatile std::byte*>(there) != std::byte{0};
}

inline std::vector<std::byte> random_bytes(std::mt19937_64& random, std::size_t count) {
  std::vector<std::byte> bytes(count);
  std::size_t at = 0;
  for (; at + 8 <= count; at += 8) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, 8);
  }
  for (; at < count; ++at) bytes[at] = static_cast<std::byte>(random());
  return bytes;
}

inline std::size_t random_below(std::mt19937_64& random, std::size_t limit) {
  return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
}

inline bool equal_bytes(const void* a, const void* b, std::size_t bytes) {
  return bytes == 0 || std::memcmp(a, b, bytes) == 0;
}

}  // namespace unisono::test
