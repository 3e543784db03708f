// What comes from the network: strangers, replays, half handshakes, and frames that must not be.

#include <dirent.h>
#include <poll.h>

#include <algorithm>
#include <set>

#include "conformance/harness.h"
#include "transport/counted_clock.h"
#include "transport/raw_peer.h"

namespace unisono::test {
namespace {

using namespace transport::socket;

constexpr Geometry geometry{.region_bytes = 10'000, .signals = 3};
Factory sockets() { return {"socket", transport::socket::make_transport, true}; }

std::ptrdiff_t open_descriptors() {
  DIR* directory = opendir("/proc/self/fd");
  std::ptrdiff_t count = 0;
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

class Sockets : public testing::Test {
 protected:
  // Rank 1 with a connection that a raw peer, as rank 0, has joined with one stream.
  struct Victim {
    std::string name = fresh_job();
    Job job{sockets(), 2, name};
    HandshakeKeys keys{Job::key(name)};
    std::unique_ptr<Connection> connection = must(job.connect(1, 0, geometry));
    RawPeer peer{*job.transports[1]};

    Victim() {
      peer.join(keys, hello_of_rank_0(geometry));
      EXPECT_TRUE(eventually([&] { return is_ready(*connection); }));
    }
    Error progress_error() {
      return until_error([&] { return connection->progress(); });
    }
  };

  const HandshakeKeys keys_{*fresh_key()};
  const Nonces nonces_{.connector = *fresh_nonce(), .acceptor = *fresh_nonce()};
};

TEST_F(Sockets, AnyChangedBitOfAHandshakeIsRefused) {
  const HandshakeKeys others(*fresh_key());
  const Hello hello = hello_of_rank_0(geometry);
  const auto refuses_changes = [&](std::span<const std::byte> message, const auto& is_accepted) {
    ASSERT_TRUE(is_accepted(keys_, nonces_, message));
    EXPECT_FALSE(is_accepted(others, nonces_, message)) << "another job's key";
    for (const bool of_acceptor : {false, true}) {
      Nonces changed = nonces_;
      (of_acceptor ? changed.acceptor : changed.connector) = *fresh_nonce();
      // What the acceptor drew is what its own message says.
      if (message.size() == challenge_bytes && of_acceptor) continue;
      EXPECT_FALSE(is_accepted(keys_, changed, message)) << "recorded with other nonces";
    }
    for (std::size_t bit = 0; bit < 8 * message.size(); ++bit) {
      std::vector<std::byte> changed(message.begin(), message.end());
      changed[bit / 8] ^= std::byte{1} << bit % 8;
      ASSERT_FALSE(is_accepted(keys_, nonces_, changed)) << "bit " << bit;
    }
    EXPECT_FALSE(is_accepted(keys_, nonces_, message.first(message.size() - 1)));
    EXPECT_FALSE(is_accepted(keys_, nonces_, {}));
  };
  using Bytes = std::span<const std::byte>;
  refuses_changes(encode_challenge(keys_, nonces_),
                  [](const HandshakeKeys& keys, const Nonces& nonces, Bytes bytes) {
                    return decode_challenge(keys, nonces.connector, bytes).ok();
                  });
  refuses_changes(encode_hello(keys_, nonces_, hello),
                  [](const HandshakeKeys& keys, const Nonces& nonces, Bytes bytes) {
                    return decode_hello(keys, nonces, bytes).ok();
                  });
  refuses_changes(encode_reply(keys_, nonces_, hello, {.geometry = geometry}),
                  [&](const HandshakeKeys& keys, const Nonces& nonces, Bytes bytes) {
                    return decode_reply(keys, nonces, hello, bytes).ok();
                  });
}

TEST_F(Sockets, AGreetingIsOfThisVersionAndOfItsSize) {
  const auto greeting = encode_greeting(nonces_.connector);
  const std::span<const std::byte> whole(greeting);
  ASSERT_TRUE(decode_greeting(whole).ok());
  EXPECT_EQ(*decode_greeting(whole), nonces_.connector);
  std::vector<std::byte> longer(whole.begin(), whole.end());
  longer.push_back({});
  EXPECT_FALSE(decode_greeting(longer).ok());
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_FALSE(decode_greeting(whole.first(bytes)).ok()) << bytes;
  for (std::size_t bit = 0; bit < 64; ++bit) {
    std::vector<std::byte> other(whole.begin(), whole.end());
    other[bit / 8] ^= std::byte{1} << bit % 8;
    EXPECT_FALSE(decode_greeting(other).ok()) << bit;
  }
}

TEST_F(Sockets, AReplyBelongsToItsHello) {
  const Hello hello = hello_of_rank_0(geometry);
  const auto message = encode_reply(keys_, nonces_, hello, {.geometry = geometry});
  Hello other_stream = hello;
  other_stream.stream = 1;
  EXPECT_FALSE(decode_reply(keys_, nonces_, other_stream, message).ok());
}

TEST_F(Sockets, APeerThatProvedTheKeyAndSaysNonsenseIsRefused) {
  const auto accepts = [&](const auto& change) {
    Hello hello = hello_of_rank_0(geometry);
    change(hello);
    return decode_hello(keys_, nonces_, encode_hello(keys_, nonces_, hello)).ok();
  };
  EXPECT_TRUE(accepts([](Hello&) {}));
  EXPECT_FALSE(accepts([](Hello& hello) { hello.streams = 0; }));
  EXPECT_FALSE(accepts([](Hello& hello) { hello.streams = max_streams + 1; }));
  EXPECT_FALSE(accepts([](Hello& hello) { hello.stream = hello.streams; }));
  EXPECT_FALSE(accepts([](Hello& hello) { hello.geometry.signals = -1; }));
  EXPECT_FALSE(accepts([](Hello& hello) { hello.geometry.region_bytes = ~std::size_t{0}; }));
  EXPECT_FALSE(accepts([](Hello& hello) { hello.protection = sys::Protection(3); }));
  const auto accepts_reply = [&](const Reply& reply) {
    const Hello hello = hello_of_rank_0(geometry);
    return decode_reply(keys_, nonces_, hello, encode_reply(keys_, nonces_, hello, reply)).ok();
  };
  EXPECT_TRUE(accepts_reply({}));
  EXPECT_FALSE(accepts_reply({.verdict = Reply::Verdict(0)}));
  EXPECT_FALSE(accepts_reply({.verdict = Reply::Verdict(5)}));
  EXPECT_FALSE(accepts_reply({.protection = sys::Protection(3)}));
}

TEST_F(Sockets, EachStreamAndDirectionHasItsOwnKey) {
  const Hello hello = hello_of_rank_0(geometry);
  std::set<Key> seen;
  const auto add = [&](const StreamKeys& keys) {
    EXPECT_TRUE(seen.insert(keys.connector).second);
    EXPECT_TRUE(seen.insert(keys.acceptor).second);
  };
  add(derive_stream_keys(keys_, nonces_, hello));
  Hello other = hello;
  other.stream = 1;
  add(derive_stream_keys(keys_, nonces_, other));
  other = hello;
  other.key.epoch = 1;
  add(derive_stream_keys(keys_, nonces_, other));
  add(derive_stream_keys(keys_, {.connector = nonces_.connector, .acceptor = *fresh_nonce()},
                         hello));
  add(derive_stream_keys(HandshakeKeys(*fresh_key()), nonces_, hello));
}

TEST_F(Sockets, FramesOutsideTheRegionAreViolations) {
  const std::vector<Frame> wrong{
      {.type = Frame::Type::put, .offset = 9'999, .bytes = 2},
      {.type = Frame::Type::put, .offset = 10'000},
      {.type = Frame::Type::piece},
      {.type = Frame::Type::piece, .bytes = 1, .value = 1},
      {.type = Frame::Type::piece, .signal = 0, .bytes = 1},
      {.type = Frame::Type::put, .bytes = 1, .value = 1},
      {.type = Frame::Type::bye, .offset = 1},
      {.type = Frame::Type::bye, .value = 1},
      {.type = Frame::Type::bye, .pieces = 1},
      {.type = Frame::Type::fault, .pieces = 1},
      {.type = Frame::Type::put, .offset = 0, .bytes = 10'001},
      {.type = Frame::Type::piece, .offset = ~std::uint64_t{0}, .bytes = 1},
      {.type = Frame::Type::piece, .offset = 1, .bytes = ~std::uint64_t{0}},
      {.type = Frame::Type::put, .signal = 3, .offset = 0, .bytes = 1},
      {.type = Frame::Type::signal, .signal = 3, .value = 1},
      {.type = Frame::Type::signal, .value = 1},
      {.type = Frame::Type::signal, .signal = 0, .bytes = 1},
      {.type = Frame::Type::bye, .bytes = 8},
      {.type = Frame::Type::signal},
      {.type = static_cast<Frame::Type>(0)},
      {.type = static_cast<Frame::Type>(6)},
      {.type = static_cast<Frame::Type>(0xffffffff)},
  };
  for (const Frame& frame : wrong) {
    Victim victim;
    victim.peer.frame(frame);
    const Error told = victim.progress_error();
    EXPECT_EQ(told.kind, ErrorKind::peer);
    EXPECT_EQ(told.peer, 0);
    for (std::size_t i = 0; i < geometry.region_bytes; ++i)
      ASSERT_EQ(victim.connection->region()[i], std::byte{0}) << told.message;
    for (int i = 0; i < geometry.signals; ++i)
      EXPECT_EQ(victim.connection->signals()[i].load(), 0u);
    // It stays so.
    EXPECT_EQ(victim.progress_error().message, told.message);
  }
}

TEST_F(Sockets, PiecesThatNeverCameHoldSignalsBack) {
  Victim victim;
  victim.peer.frame({.type = Frame::Type::signal, .signal = 0, .value = 5, .pieces = 2});
  victim.peer.frame({.type = Frame::Type::piece, .offset = 0, .bytes = 4});
  victim.peer.send(std::vector<std::byte>(4, std::byte{9}));
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(victim.connection->progress().ok());
    return victim.connection->region()[3] == std::byte{9};
  }));
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(victim.connection->progress().ok());
  EXPECT_EQ(victim.connection->signals()[0].load(), 0u);
  victim.peer.frame({.type = Frame::Type::piece, .offset = 4, .bytes = 1, .pieces = 1});
  victim.peer.send(std::vector<std::byte>(1, std::byte{8}));
  EXPECT_TRUE(wait_for_signal(*victim.connection, 0, 5));
  // Counts that go back are a violation.
  victim.peer.frame({.type = Frame::Type::signal, .signal = 0, .value = 6, .pieces = 1});
  EXPECT_NE(victim.progress_error().message.find("pieces"), std::string::npos);
}

TEST_F(Sockets, EndlessSignalsWithoutTheirPiecesStopBeingRead) {
  Victim victim;
  // Far more than are kept; the peer's bytes then stay in the kernel, and memory grows no more.
  EXPECT_EQ(victim.connection->signals()[1].load(), 0u);
  const std::size_t before = victim.connection->memory_bytes();
  std::vector<std::byte> flood;
  for (std::uint64_t i = 0; i < 3'000; ++i) {
    const auto frame =
        encode({.type = Frame::Type::signal, .signal = 1, .value = i + 1, .pieces = 1});
    flood.insert(flood.end(), frame.begin(), frame.end());
  }
  victim.peer.send(flood);
  for (int i = 0; i < 300; ++i) EXPECT_TRUE(victim.connection->progress().ok());
  EXPECT_EQ(victim.connection->signals()[1].load(), 0u);
  constexpr std::size_t kept = std::size_t{1024} * 24;
  EXPECT_GT(victim.connection->memory_bytes(), before);
  EXPECT_LE(victim.connection->memory_bytes(), before + kept);
}

TEST_F(Sockets, GoingOnAfterByeIsAViolation) {
  Victim victim;
  victim.peer.frame({.type = Frame::Type::bye});
  victim.peer.frame({.type = Frame::Type::signal, .signal = 0, .value = 1});
  EXPECT_NE(victim.progress_error().message.find("after it had closed"), std::string::npos);
}

TEST_F(Sockets, AFaultThatCannotBeIsAViolationOfWhoToldIt) {
  const auto packed = [](std::uint32_t kind, std::int32_t rank) {
    return std::uint64_t{kind} << 32 | static_cast<std::uint32_t>(rank);
  };
  for (const std::uint64_t word : {packed(0x12345678, 1), packed(0, 1), packed(5, 1), packed(6, 1),
                                   packed(2, -2), packed(2, Job::ranks), packed(2, 1 << 30),
                                   packed(2, INT32_MIN), packed(2, INT32_MAX), std::uint64_t{0}}) {
    Victim victim;
    victim.peer.frame({.type = Frame::Type::fault, .value = word});
    const Error told = victim.progress_error();
    EXPECT_EQ(told.kind, ErrorKind::peer);
    EXPECT_EQ(told.peer, 0) << told.message;
  }
  Victim victim;
  victim.peer.frame({.type = Frame::Type::fault, .value = packed(2, Job::ranks - 1)});
  EXPECT_EQ(victim.progress_error().peer, Job::ranks - 1);
}

TEST_F(Sockets, AnEndWithoutAByeIsADeathAndOneAfterItIsNot) {
  for (const bool says_bye : {false, true}) {
    Victim victim;
    if (says_bye) victim.peer.frame({.type = Frame::Type::bye});
    victim.peer.close();
    const Error told = until_error([&] { return victim.connection->check_peer(); });
    EXPECT_EQ(told.peer, 0);
    EXPECT_EQ(told.message.find("failed") == std::string::npos, says_bye) << told.message;
  }
}

TEST_F(Sockets, AnEndInTheMiddleOfAFrameIsADeath) {
  Victim victim;
  victim.peer.frame({.type = Frame::Type::put, .offset = 0, .bytes = 100});
  victim.peer.send(std::vector<std::byte>(50));
  victim.peer.close();
  const Error told = until_error([&] { return victim.connection->check_peer(); });
  EXPECT_EQ(told.peer, 0);
  EXPECT_NE(told.message.find("failed"), std::string::npos) << told.message;
}

TEST_F(Sockets, AnUnreachablePeerIsNamedAfterSomeAttempts) {
  const CountedClock clock;
  Job job(sockets(), 1);
  std::string nobody;
  {
    Job other(sockets(), 1);
    nobody = other.transports[0]->address();
  }
  auto connection = must(job.transports[0]->connect(
      {.key = {}, .ranks = 2, .self = 0, .peer = 1, .peer_address = nobody, .geometry = geometry}));
  const auto begin = std::chrono::steady_clock::now();
  const Error told = until_error([&]() -> Status {
    CountedClock::advance(std::chrono::milliseconds(20));
    job.progress();
    auto ready = connection->ready();
    return ready.ok() ? Status{} : Status(ready.take_error());
  });
  // With longer and longer pauses between them: 20 ms, 40 ms, ... 2560 ms.
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(5100));
  EXPECT_EQ(told.peer, 1);
  EXPECT_NE(told.message.find(nobody), std::string::npos) << told.message;
}

TEST_F(Sockets, DescriptorsAreGivenBack) {
  const auto before = open_descriptors();
  for (int round = 0; round < 5; ++round) {
    Job job(sockets(), 3);
    auto unfinished = must(job.connect(0, 2, geometry));
    Pair pair(job, geometry);
    EXPECT_GT(open_descriptors(), before);
    pair.a->abort({Fault::Kind::aborted, 0});
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(Sockets, OneStreamAndManyWorkAlike) {
  std::mt19937_64 random(3);
  const auto with_streams = [](std::int64_t streams) -> Factory {
    const auto make = [streams](TransportOptions options) {
      options.socket_streams = streams;
      return transport::socket::make_transport(options);
    };
    return {"socket", make, true};
  };
  for (const int streams : {1, 3, 16}) {
    Job job(with_streams(streams), 2);
    constexpr std::size_t bytes = (9u << 20) + 7;
    Pair pair(job, {.region_bytes = bytes, .signals = 1});
    const auto source = random_bytes(random, bytes);
    std::thread receiver([&] { EXPECT_TRUE(wait_for_signal(*pair.b, 0, 2)); });
    EXPECT_TRUE(put(*pair.a, source.data(), bytes / 2, 0, {0, 1}));
    EXPECT_TRUE(put(*pair.a, source.data() + bytes / 2, bytes - bytes / 2, bytes / 2, {0, 2}));
    EXPECT_TRUE(wait_for_completion(*pair.a));
    receiver.join();
    EXPECT_TRUE(equal_bytes(pair.b->region(), source.data(), bytes)) << streams << " streams";
  }
  for (const int streams : {17, -1}) {
    const auto refused = with_streams(streams).make(Job::options("x"));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message,
              str("UNISONO_SOCKET_STREAMS is ", streams, "; it must be 1 to 16, or 0 to choose"));
  }
}

}  // namespace
}  // namespace unisono::test
