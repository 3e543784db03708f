// What the socket transport waits for: descriptors, a peer that answers late, its own last bytes.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <set>

#include "conformance/harness.h"
#include "support/sanitized.h"
#include "transport/counted_clock.h"
#include "transport/raw_peer.h"
#include "transport/shm/transport.h"
#include "transport/socket/small_messages.h"

namespace unisono::test {
namespace {

using std::chrono::steady_clock;
constexpr Geometry geometry{.region_bytes = 10'000, .signals = 3};

Factory sockets() { return {"socket", transport::socket::make_transport, true}; }

// In a process of its own: transports raise a soft limit, and a hard one is never raised again.
void in_a_child(const std::function<void()>& body) {
  if (is_sanitized) GTEST_SKIP() << "a sanitizer needs descriptors of its own";
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    body();
    std::fflush(stdout);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// This process can open nothing more.
void use_up_descriptors() {
  const int next = dup(0);
  close(next);
  const rlimit none{.rlim_cur = static_cast<rlim_t>(next), .rlim_max = static_cast<rlim_t>(next)};
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
}

class SocketWaits : public testing::Test {
 protected:
  static Error error_of(Job& job, Connection& connection) {
    return until_error([&]() -> Status {
      CountedClock::advance(std::chrono::milliseconds(10));
      job.progress();
      auto ready = connection.ready();
      return ready.ok() ? Status() : Status(ready.take_error());
    });
  }
};

TEST_F(SocketWaits, AnEndWithoutADescriptorSaysSoAfterASecond) {
  in_a_child([] {
    const CountedClock clock;
    Job job(sockets(), 2);
    const auto connects = must(job.connect(0, 1, geometry));
    use_up_descriptors();
    const auto begin = steady_clock::now();
    const Error told = error_of(job, *connects);
    EXPECT_EQ(told.kind, ErrorKind::environment);
    EXPECT_EQ(told.message.find("rank 0 cannot open its connection to rank 1: "), 0U)
        << told.message;
    EXPECT_GE(steady_clock::now() - begin, std::chrono::milliseconds(990));
  });
}

// Only the connection that waits to be accepted is concerned.
TEST_F(SocketWaits, AnAcceptorWithoutADescriptorSaysSoAfterASecond) {
  in_a_child([] {
    const CountedClock clock;
    Job job(sockets(), 3);
    Transport& own = *job.transports[1];
    const auto accepts = must(job.connect(1, 0, geometry));
    const auto connects = must(job.connect(1, 2, geometry));
    EXPECT_TRUE(own.progress().ok());
    const RawPeer waits(own);
    use_up_descriptors();
    const auto begin = steady_clock::now();
    const Error told = until_error([&]() -> Status {
      CountedClock::advance(std::chrono::milliseconds(10));
      EXPECT_TRUE(own.progress().ok());
      auto ready = accepts->ready();
      return ready.ok() ? Status() : Status(ready.take_error());
    });
    EXPECT_EQ(told.kind, ErrorKind::environment);
    EXPECT_EQ(told.message.find("rank 1 cannot open its connection to rank 0: "), 0U)
        << told.message;
    EXPECT_GE(steady_clock::now() - begin, std::chrono::milliseconds(990));
    EXPECT_FALSE(is_ready(*connects));
  });
}

TEST_F(SocketWaits, ATransportWithoutDescriptorsIsNotMade) {
  in_a_child([] {
    const Job before(sockets(), 1);
    use_up_descriptors();
    const auto made = transport::socket::make_transport(Job::options(fresh_job()));
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().kind, ErrorKind::environment);
    EXPECT_EQ(made.error().message.find("making an epoll: "), 0U) << made.error().message;
    const auto shared = transport::shm::make_transport(Job::options(fresh_job()));
    ASSERT_FALSE(shared.ok());
    EXPECT_EQ(shared.error().kind, ErrorKind::environment);
    EXPECT_EQ(shared.error().message,
              "this process cannot read when it was started (/proc/self/stat): it can open no more "
              "files (ulimit -n)");
  });
}

// What it had begun is given up with it: the peer joins nobody.
TEST_F(SocketWaits, AnEndThatIsDestroyedBeforeItIsMadeIsNeverJoined) {
  const CountedClock clock;
  Job job(sockets(), 2);
  auto a = must(job.connect(0, 1, geometry));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(job.transports[0]->progress().ok());
  a.reset();
  const auto b = must(job.connect(1, 0, geometry));
  for (int ms = 0; ms < 300; ++ms) {
    CountedClock::advance(std::chrono::milliseconds(1));
    job.progress();
    ASSERT_FALSE(is_ready(*b));
  }
}

TEST_F(SocketWaits, DescriptorsThatAreMissingForAMomentAreWaitedFor) {
  in_a_child([] {
    const CountedClock clock;
    Job job(sockets(), 2);
    const auto a = must(job.connect(0, 1, geometry));
    const auto b = must(job.connect(1, 0, geometry));
    std::vector<sys::Socket> held;
    for (int i = 0; i < 20; ++i) held.emplace_back(dup(0));
    use_up_descriptors();
    // Less than the second after which they would fail.
    for (int ms = 0; ms < 900; ms += 10) {
      CountedClock::advance(std::chrono::milliseconds(10));
      job.progress();
      EXPECT_FALSE(is_ready(*a) || is_ready(*b));
    }
    held.clear();
    // The next attempts come after a pause.
    EXPECT_TRUE(eventually([&] {
      CountedClock::advance(std::chrono::milliseconds(10));
      job.progress();
      const bool ready = is_ready(*a);
      return is_ready(*b) && ready;
    }));
  });
}

// The local ports from which connections to this one are being made.
std::set<std::string> connecting_to(std::uint16_t port) {
  constexpr std::string_view syn_sent = "02";
  const std::string wanted = [&] {
    char text[8];
    std::snprintf(text, sizeof text, ":%04X", port);
    return std::string(text);
  }();
  std::set<std::string> from;
  std::ifstream table("/proc/self/net/tcp");
  std::string number, local, remote, state, rest;
  std::getline(table, rest);
  while (table >> number >> local >> remote >> state && std::getline(table, rest))
    if (state == syn_sent && remote.ends_with(wanted)) from.insert(local);
  return from;
}

// A listener that takes no more for now: its connections are neither made nor refused.
class FullListener {
 public:
  FullListener() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    listener_ = sys::Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    EXPECT_EQ(listen(listener_.get(), 0), 0);
    port_ = ntohs(address.sin_port);
    for (int i = 0; i < 100 && connecting_to(port_).empty(); ++i)
      waiting_.emplace_back(*sys::begin_connect(*sys::Address::parse(name())));
  }
  std::string name() const { return str("127.0.0.1:", port_); }
  std::uint16_t port() const { return port_; }

 private:
  sys::Socket listener_;
  std::uint16_t port_ = 0;
  std::vector<sys::Socket> waiting_;
};

TEST_F(SocketWaits, ASocketThatHasNoOtherSideIsAnErrorBothWays) {
  const auto fresh = [] {
    return transport::socket::SmallMessages(
        sys::Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  };
  auto sends = fresh();
  const auto sent = sends.send(std::array<std::byte, 8>{});
  ASSERT_FALSE(sent.ok());
  EXPECT_EQ(sent.error().message.find("sending: "), 0U) << sent.error().message;
  EXPECT_TRUE(sends.is_lost());
  auto receives = fresh();
  const auto received = receives.receive(8);
  ASSERT_FALSE(received.ok());
  EXPECT_EQ(received.error().message.find("receiving: "), 0U) << received.error().message;
  EXPECT_TRUE(receives.is_lost());
}

TEST_F(SocketWaits, AnAttemptThatIsNotAnsweredYetIsNotGivenUp) {
  const CountedClock clock;
  const FullListener peer;
  const auto others = connecting_to(peer.port());
  Job job(sockets(), 1);
  const auto connection = must(job.transports[0]->connect({.key = {},
                                                           .ranks = 2,
                                                           .self = 0,
                                                           .peer = 1,
                                                           .peer_address = peer.name(),
                                                           .geometry = geometry}));
  std::set<std::string> seen;
  for (int ms = 0; ms < 300; ms += 10) {
    CountedClock::advance(std::chrono::milliseconds(10));
    job.progress();
    EXPECT_FALSE(is_ready(*connection));
    for (const std::string& from : connecting_to(peer.port()))
      if (!others.contains(from)) seen.insert(from);
  }
  constexpr std::size_t streams = 2;
  EXPECT_EQ(seen.size(), streams) << "it was tried again meanwhile";
}

TEST_F(SocketWaits, WhoLeavesInTheMiddleOfAPutHasLeftAndHasNotDied) {
  constexpr std::size_t bytes = std::size_t{64} << 20;
  Job job(sockets(), 2);
  Pair pair(job, {.region_bytes = bytes, .signals = 1});
  const std::vector<std::byte> source(bytes, std::byte{1});
  EXPECT_TRUE(*pair.a->try_put(source.data(), bytes, 0, {0, 1}));
  EXPECT_LT(pair.a->puts_completed(), pair.a->puts_started()) << "all of it went at once";
  pair.a.reset();
  const Error told = until_error([&] {
    job.progress();
    return pair.b->check_peer();
  });
  EXPECT_NE(told.message.find("left the communicator while this rank still waits"),
            std::string::npos)
      << told.message;
}

}  // namespace
}  // namespace unisono::test
