// Whoever lacks the job's key: what they try at a listener and in shared memory, what they are
// told, and what they cost.

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <deque>
#include <thread>

#include "sys/shared_memory.h"
#include "transport/counted_clock.h"
#include "transport/raw_peer.h"
#include "transport/shm/segment.h"
#include "transport/shm/transport.h"
#include "transport/socket/acceptor.h"

namespace unisono::test {
namespace {

using namespace transport::socket;

constexpr Geometry geometry{.region_bytes = 10'000, .signals = 3};

Factory sockets() { return {"socket", make_transport, true}; }
Factory shared_memory() { return {"shm", transport::shm::make_transport, true}; }

std::size_t open_descriptors() {
  DIR* directory = opendir("/proc/self/fd");
  std::size_t count = 0;
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

class Strangers : public testing::Test {
 protected:
  void goes_on(Job& job) {
    Pair pair(job, geometry);
    EXPECT_TRUE(put(*pair.a, "works", 5, 0, {0, 1}));
    EXPECT_TRUE(wait_for_signal(*pair.b, 0, 1));
  }

  std::mt19937_64 random_{std::random_device{}()};
};

TEST_F(Strangers, GetNoByteForNoiseAndTheJobGoesOn) {
  Job job(sockets(), 2);
  for (int i = 0; i < 20; ++i) {
    RawPeer stranger(*job.transports[1]);
    stranger.send(random_bytes(random_, greeting_bytes + random_below(random_, 200)));
    EXPECT_TRUE(stranger.receive(1).empty()) << "a stranger got an answer";
    EXPECT_TRUE(stranger.is_closed());
  }
  RawPeer silent(*job.transports[1]);
  RawPeer halting(*job.transports[1]);
  halting.send(random_bytes(random_, greeting_bytes - 1));
  goes_on(job);
}

// What anybody can find out of a job: its public name, the listener's address, the protocol.
TEST_F(Strangers, WhoKnowsTheJobsNameIsToldNothingAndHarmsNobody) {
  const std::string name = fresh_job();
  Job job(sockets(), 2, name);
  auto victim = must(job.connect(1, 0, geometry));
  for (const Key& guess :
       {derive_key(as_bytes_of(name), "unisono data"), derive_key({}, "test", {as_bytes_of(name)}),
        derive_key(as_bytes_of(name), "test"), Key{}}) {
    const HandshakeKeys keys(guess);
    for (const bool right_geometry : {true, false}) {
      RawPeer stranger(*job.transports[1]);
      Nonces nonces{.connector = *fresh_nonce(), .acceptor = {}};
      stranger.send(encode_greeting(nonces.connector));
      const auto challenge = stranger.receive(challenge_bytes);
      ASSERT_EQ(challenge.size(), challenge_bytes);
      EXPECT_FALSE(decode_challenge(keys, nonces.connector, challenge).ok());
      std::copy_n(challenge.begin(), sizeof(Nonce), nonces.acceptor.begin());
      Hello hello = hello_of_rank_0(geometry);
      if (!right_geometry) hello.geometry.signals = 2;
      stranger.send(encode_hello(keys, nonces, hello));
      EXPECT_TRUE(stranger.receive(1).empty()) << "a stranger was told something";
      EXPECT_TRUE(stranger.is_closed());
      auto ready = victim->ready();
      ASSERT_TRUE(ready.ok()) << ready.error().describe();
      EXPECT_FALSE(*ready);
    }
  }
  auto peer = must(job.connect(0, 1, geometry));
  EXPECT_TRUE(eventually([&] {
    job.progress();
    const bool ready = is_ready(*peer);
    return is_ready(*victim) && ready;
  }));
}

TEST_F(Strangers, WhatWasRecordedProvesNothing) {
  const std::string name = fresh_job();
  Job job(sockets(), 2, name);
  const HandshakeKeys keys(Job::key(name));
  const Hello hello = hello_of_rank_0(geometry);
  const Nonces recorded = RawPeer(*job.transports[1]).greet(keys);
  RawPeer replay(*job.transports[1]);
  replay.send(encode_greeting(recorded.connector));
  EXPECT_EQ(replay.receive(challenge_bytes).size(), challenge_bytes);
  replay.send(encode_hello(keys, recorded, hello));
  EXPECT_TRUE(replay.receive(1).empty());
  EXPECT_TRUE(replay.is_closed());
}

// A rank that knows every key, but is in an epoch that the other has left: one that was stopped
// while the others shrank their communicator.
TEST_F(Strangers, WhoAsksForAnEpochThatIsOverIsRefused) {
  const auto epochs = std::make_shared<OpenEpochs>();
  int made = 0;
  Job job(Factory{"socket",
                  [&](TransportOptions options) {
                    if (made++ == 1) options.epochs = epochs;
                    return transport::socket::make_transport(options);
                  }},
          2);
  epochs->open(3);
  epochs->open(4);
  {
    const Pair current(job, geometry, {.epoch = 3});
  }
  epochs->close(3);
  for (const std::uint32_t past : {0U, 3U}) {
    auto stale = must(job.connect(0, 1, geometry, {.epoch = past}));
    Result<bool> ready = false;
    EXPECT_TRUE(eventually([&] {
      job.progress();
      ready = stale->ready();
      return !ready.ok();
    }));
    ASSERT_FALSE(ready.ok());
    EXPECT_EQ(ready.error().peer, 1);
    EXPECT_NE(ready.error().message.find("that epoch is over there"), std::string::npos)
        << ready.error().message;
  }
  const Pair newest(job, geometry, {.epoch = 4});
}

// Somebody listens where a rank did: the rank that connects says nothing of itself before proof.
TEST_F(Strangers, AtAPeersAddressLearnANonceOnly) {
  Job job(sockets(), 1);
  const sys::Socket listener(*sys::open_listener({.host = "127.0.0.1", .port = 0}));
  auto connection =
      must(job.transports[0]->connect({.key = {},
                                       .ranks = 2,
                                       .self = 0,
                                       .peer = 1,
                                       .peer_address = sys::local_address(listener.get())->text(),
                                       .geometry = geometry}));
  for (int attempt = 0; attempt < 3; ++attempt) {
    sys::Socket accepted;
    ASSERT_TRUE(eventually([&] {
      job.progress();
      accepted = std::move(*sys::accept_one(listener));
      return static_cast<bool>(accepted);
    }));
    std::vector<std::byte> said;
    const auto hear = [&] {
      job.progress();
      std::byte byte{};
      const iovec part{.iov_base = &byte, .iov_len = 1};
      const auto got = sys::receive_some(accepted, {&part, 1});
      if (got.bytes == 1) said.push_back(byte);
      return got;
    };
    EXPECT_TRUE(eventually([&] {
      hear();
      return said.size() == greeting_bytes;
    }));
    const auto answer = random_bytes(random_, challenge_bytes);
    const iovec part{.iov_base = const_cast<std::byte*>(answer.data()), .iov_len = answer.size()};
    ASSERT_EQ(sys::send_some(accepted, {&part, 1}).bytes, answer.size());
    EXPECT_TRUE(eventually([&] {
      const auto got = hear();
      return got.ended || got.error != 0;
    }));
    EXPECT_EQ(said.size(), greeting_bytes) << "more was said to a stranger";
  }
  EXPECT_FALSE(is_ready(*connection));
}

// A rank waits for no stranger's second to pass. A busy machine does not make this clock run.
TEST_F(Strangers, FiveHundredIdleOnesKeepNobodyOut) {
  const CountedClock clock;
  Job job(sockets(), 2);
  const auto before = open_descriptors();
  std::vector<std::unique_ptr<RawPeer>> idle;
  for (int i = 0; i < 500; ++i) {
    idle.push_back(std::make_unique<RawPeer>(*job.transports[1]));
    if (i % 2 == 0) idle.back()->send(encode_greeting(*fresh_nonce()));
    job.progress();
  }
  EXPECT_LE(open_descriptors(), before + idle.size() + Acceptor::max_strangers);
  const auto begin = std::chrono::steady_clock::now();
  goes_on(job);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(500));
  // The oldest went first, and each of the others goes after its second.
  EXPECT_TRUE(idle.front()->is_closed_now());
  EXPECT_FALSE(idle.back()->is_closed_now());
  CountedClock::advance(std::chrono::seconds(Acceptor::stranger_seconds));
  EXPECT_TRUE(eventually([&] {
    job.progress();
    return std::ranges::all_of(idle, [](const auto& each) { return each->is_closed_now(); });
  }));
}

TEST_F(Strangers, AFloodKeepsNobodyOut) {
  const CountedClock clock;
  Job job(sockets(), 2);
  const auto address = *sys::Address::parse(job.transports[1]->address());
  std::atomic<bool> over{false};
  std::atomic<int> connected{0};
  std::thread flood([&] {
    std::deque<sys::Socket> open;
    while (!over) {
      if (auto descriptor = sys::begin_connect(address); descriptor.ok()) {
        open.emplace_back(*descriptor);
        ++connected;
      }
      if (open.size() > 1000) open.pop_front();
    }
  });
  EXPECT_TRUE(eventually([&] {
    job.progress();
    return connected > 1000;
  }));
  const auto begin = std::chrono::steady_clock::now();
  goes_on(job);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(500));
  over = true;
  flood.join();
}

TEST_F(Strangers, AreLoggedOncePerAddress) {
  testing::internal::CaptureStderr();
  {
    Job job(sockets(), 2);
    for (int i = 0; i < 30; ++i) {
      RawPeer stranger(*job.transports[1]);
      stranger.send(random_bytes(random_, greeting_bytes));
      EXPECT_TRUE(stranger.is_closed());
    }
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(log, '\n'), 1) << log;
  EXPECT_NE(log.find("127.0.0.1"), std::string::npos) << log;
  EXPECT_EQ(log.find("rank"), std::string::npos)
      << "a rank was named for what a stranger did: " << log;
}

TEST_F(Strangers, FindNothingInTheNamesOfSegments) {
  const Key key = *fresh_key();
  const ConnectionKey connection{.communicator = 0xabcdef12345678, .epoch = 0, .channel = 3};
  const auto name = [&](const Key& of, const ConnectionKey& which, int low, int high) {
    return transport::shm::segment_name(of, which, low, high);
  };
  const std::string own = name(key, connection, 0, 1);
  EXPECT_EQ(own, name(key, connection, 0, 1));
  EXPECT_EQ(own.size(), str("/", transport::shm::segment_prefix).size() + 32);
  EXPECT_EQ(own.find("abcdef12345678"), std::string::npos);
  EXPECT_NE(own, name(*fresh_key(), connection, 0, 1)) << "the name does not need the key";
  ConnectionKey other = connection;
  other.channel = 4;
  EXPECT_NE(own, name(key, other, 0, 1));
  other = connection;
  other.epoch = 1;
  EXPECT_NE(own, name(key, other, 0, 1));
  EXPECT_NE(own, name(key, connection, 0, 2));
  EXPECT_NE(own, name(key, connection, 1, 2));
}

// A process of the same user finds the segment in /dev/shm and joins it as the peer, with
// everything right but the proof: it is no rank, and what it says counts for nothing.
TEST_F(Strangers, WhoJoinsASegmentWithoutTheKeyIsNoRank) {
  using namespace transport::shm;
  enum class Lie : std::uint8_t {
    no_proof,
    own_proof_of_the_victim,
    other_facts,
    proof_of_another_connection,
  };
  for (const Lie lie : {Lie::no_proof, Lie::own_proof_of_the_victim, Lie::other_facts,
                        Lie::proof_of_another_connection}) {
    const std::string name = fresh_job();
    Job job(shared_memory(), 2, name);
    auto victim = must(job.connect(0, 1, geometry));
    auto honest = lie == Lie::other_facts ? must(job.connect(1, 0, geometry)) : nullptr;
    const auto map = [&](const ConnectionKey& key) {
      const std::string segment = segment_name(Job::key(name), key, 0, 1);
      auto mapped = sys::SharedMemory::open(segment, sizeof(Header), sizeof(Header));
      EXPECT_TRUE(mapped.ok());
      return std::move(*mapped);
    };
    const auto mapped = map({});
    auto& header = *reinterpret_cast<Header*>(mapped.data());
    EndRecord& end = header.ends[1];
    if (lie == Lie::other_facts) {
      end.facts.geometry.layout ^= 1;
    } else if (lie == Lie::proof_of_another_connection) {
      const ConnectionKey elsewhere{.channel = 1};
      const auto joined = must(job.connect(1, 0, geometry, elsewhere));
      const auto other = map(elsewhere);
      const EndRecord& right = reinterpret_cast<const Header*>(other.data())->ends[1];
      end.facts = right.facts;
      end.proof = right.proof;
      end.state.store(EndState::joined);
    } else {
      end.facts = header.ends[0].facts;
      if (lie == Lie::own_proof_of_the_victim) end.proof = header.ends[0].proof;
      end.fault.store(std::uint64_t{2} << 32 | 1);
      end.state.store(EndState::joined);
    }
    const Error told = until_error([&]() -> Status {
      auto ready = victim->ready();
      return ready.ok() ? Status{} : Status(ready.take_error());
    });
    EXPECT_EQ(told.kind, ErrorKind::environment) << told.message;
    EXPECT_EQ(told.peer, -1) << "a rank is blamed for what a stranger did";
    EXPECT_EQ(told.message.find("layout"), std::string::npos) << told.message;
    EXPECT_EQ(victim->host_link(), nullptr);
    EXPECT_FALSE(victim->can_read_peer());
  }
}

TEST_F(Strangers, AFaultInSharedMemoryThatCannotBeIsThePeersOwn) {
  using namespace transport::shm;
  const std::string name = fresh_job();
  Job job(shared_memory(), 2, name);
  auto victim = must(job.connect(0, 1, geometry));
  const auto found = sys::SharedMemory::names(segment_name(Job::key(name), {}, 0, 1).substr(1));
  ASSERT_EQ(found.size(), 1u);
  auto mapped = sys::SharedMemory::open(found[0], sizeof(Header), sizeof(Header));
  ASSERT_TRUE(mapped.ok());
  auto peer = must(job.connect(1, 0, geometry));
  EXPECT_TRUE(eventually([&] { return is_ready(*victim) && is_ready(*peer); }));
  auto& header = *reinterpret_cast<Header*>(mapped->data());
  for (const std::uint64_t word :
       {std::uint64_t{2} << 32 | Job::ranks, std::uint64_t{2} << 32 | 0x80000000,
        std::uint64_t{77} << 32, std::uint64_t{5}}) {
    header.ends[1].fault.store(word);
    const Status status = victim->progress();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().peer, 1) << status.error().message;
  }
}

// As nobody, where this test is root: neither the listing nor the public name is of any use.
TEST_F(Strangers, AnotherUserGetsNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  constexpr uid_t nobody = 65534;
  const std::string name = fresh_job();
  Job over_memory(shared_memory(), 2, name);
  Job over_sockets(sockets(), 2, name);
  auto alone = must(over_memory.connect(0, 1, geometry));
  auto victim = must(over_sockets.connect(1, 0, geometry));
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(nobody) != 0 || setuid(nobody) != 0) _exit(10);
    int found = 0;
    DIR* directory = opendir("/dev/shm");
    while (const dirent* entry = directory == nullptr ? nullptr : readdir(directory)) {
      const std::string entry_name = str("/", entry->d_name);
      if (!entry_name.starts_with(str("/", transport::shm::segment_prefix))) continue;
      ++found;
      if (entry_name.find(name) != std::string::npos) _exit(11);
      // Not by SharedMemory::open, which creates what another job has removed since it was listed.
      if (shm_open(entry_name.c_str(), O_RDWR, 0) >= 0) _exit(12);
    }
    if (found == 0) _exit(13);
    const HandshakeKeys keys(derive_key(as_bytes_of(name), "unisono data"));
    auto descriptor =
        sys::begin_connect(*sys::Address::parse(over_sockets.transports[1]->address()));
    if (!descriptor.ok()) _exit(14);
    SmallMessages messages{sys::Socket(*descriptor)};
    const auto receive = [&](std::size_t bytes) {
      std::vector<std::byte> out;
      eventually([&] {
        auto got = messages.receive(bytes);
        if (got.ok()) out.assign(got->begin(), got->end());
        return !got.ok() || !out.empty();
      });
      return out;
    };
    eventually([&] { return *sys::is_connected(messages.socket()); });
    Nonces nonces{.connector = *fresh_nonce(), .acceptor = {}};
    if (!messages.send(encode_greeting(nonces.connector)).ok()) _exit(15);
    const auto challenge = receive(challenge_bytes);
    if (challenge.size() != challenge_bytes) _exit(16);
    std::copy_n(challenge.begin(), sizeof(Nonce), nonces.acceptor.begin());
    if (!messages.send(encode_hello(keys, nonces, hello_of_rank_0(geometry))).ok()) _exit(17);
    _exit(receive(1).empty() ? 0 : 18);
  }
  int status = -1;
  EXPECT_TRUE(eventually([&] {
    over_sockets.progress();
    EXPECT_FALSE(is_ready(*victim));
    EXPECT_FALSE(is_ready(*alone));
    return waitpid(child, &status, WNOHANG) == child;
  }));
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace unisono::test
