// What comes from the network: strangers, replays, half handshakes, and frames that must not be.

#include <dirent.h>
#include <poll.h>
#include <sys/uio.h>

#include <algorithm>

#include "base/log.h"
#include "base/settings.h"
#include "conformance/harness.h"
#include "sys/real_socket.h"
#include "sys/tcp_socket.h"
#include "transport/socket/frame.h"
#include "transport/socket/handshake.h"
#include "transport/socket/transport.h"

namespace unisono::test {
namespace {

using namespace transport::socket;

constexpr Geometry geometry{.region_bytes = 10'000, .signals = 3};
constexpr const char* secret = "the job's secret";

Factory sockets() { return {"socket", transport::socket::make_transport, true}; }

std::ptrdiff_t open_descriptors() {
  DIR* directory = opendir("/proc/self/fd");
  std::ptrdiff_t count = 0;
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

// A peer that speaks byte by byte.
class RawPeer {
 public:
  explicit RawPeer(Transport& to) : to_(to) {
    auto address = sys::Address::parse(to.address());
    EXPECT_TRUE(address.ok());
    auto descriptor = sys::begin_connect(*address);
    EXPECT_TRUE(descriptor.ok());
    socket_ = sys::Socket(*descriptor);
    EXPECT_TRUE(eventually([&] {
      auto connected = sys::is_connected(socket_);
      return connected.ok() && *connected;
    }));
  }

  void send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const iovec part{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
      const sys::Transferred sent = sys::send_some(socket_, {&part, 1});
      if (sent.error != 0) return;
      bytes = bytes.subspan(sent.bytes);
      EXPECT_TRUE(to_.progress().ok());
    }
  }
  // Exactly so many bytes; fewer when the other side closes.
  std::vector<std::byte> receive(std::size_t bytes) {
    std::vector<std::byte> out(bytes);
    std::size_t have = 0;
    EXPECT_TRUE(eventually([&] {
      EXPECT_TRUE(to_.progress().ok());
      const iovec part{.iov_base = out.data() + have, .iov_len = bytes - have};
      const sys::Transferred got = sys::receive_some(socket_, {&part, 1});
      have += got.bytes;
      closed_ = got.ended || got.error != 0;
      return closed_ || have == bytes;
    }));
    out.resize(have);
    return out;
  }
  bool is_closed() {
    if (!closed_) (void)receive(1);
    return closed_;
  }

  Nonce challenge() {
    auto nonce = decode_challenge(receive(challenge_bytes));
    EXPECT_TRUE(nonce.ok());
    return *nonce;
  }
  void close() { socket_.close(); }
  void frame(const Frame& frame) { send(encode(frame)); }

 private:
  Transport& to_;
  sys::Socket socket_;
  bool closed_ = false;
};

Hello hello_of_rank_0() {
  Hello hello;
  hello.nonce = *fresh_nonce();
  hello.self = 0;
  hello.peer = 1;
  hello.geometry = geometry;
  return hello;
}

class Sockets : public testing::Test {
 protected:
  Sockets() { set_log_level(LogLevel::error); }
  ~Sockets() override { set_log_level(LogLevel::warn); }

  // Rank 1 with a connection that a raw peer, as rank 0, has joined with one stream.
  struct Victim {
    Job job{sockets(), 2};
    std::unique_ptr<Connection> connection = must(job.connect(1, 0, geometry));
    RawPeer peer{*job.transports[1]};

    Victim() {
      const Hello hello = hello_of_rank_0();
      const Nonce challenge = peer.challenge();
      peer.send(encode_hello(hello, secret, challenge));
      auto reply = decode_reply(peer.receive(reply_bytes), secret, challenge, hello);
      EXPECT_TRUE(reply.ok()) << reply.error().describe();
      EXPECT_EQ(reply->verdict, Reply::Verdict::join);
      EXPECT_TRUE(eventually([&] { return is_ready(*connection); }));
    }
    Error progress_error() {
      return until_error([&] { return connection->progress(); });
    }
  };
};

TEST_F(Sockets, StrangersAreRefusedAndTheJobGoesOn) {
  std::mt19937_64 random(1);
  Job job(sockets(), 2);
  for (int i = 0; i < 20; ++i) {
    RawPeer stranger(*job.transports[1]);
    stranger.send(random_bytes(random, hello_bytes + random_below(random, 100)));
    EXPECT_TRUE(stranger.receive(challenge_bytes).size() == challenge_bytes);
    EXPECT_TRUE(stranger.is_closed()) << "a stranger got an answer";
  }
  RawPeer silent(*job.transports[1]);
  RawPeer halting(*job.transports[1]);
  halting.send(random_bytes(random, hello_bytes - 1));
  Pair pair(job, geometry);
  EXPECT_TRUE(put(*pair.a, "works", 5, 0, {0, 1}));
  EXPECT_TRUE(wait_for_signal(*pair.b, 0, 1));
}

TEST_F(Sockets, ARecordedHelloProvesNothing) {
  Job job(sockets(), 2);
  std::vector<std::byte> recorded;
  {
    RawPeer peer(*job.transports[1]);
    recorded = encode_hello(hello_of_rank_0(), secret, peer.challenge());
  }
  RawPeer replay(*job.transports[1]);
  (void)replay.challenge();
  replay.send(recorded);
  EXPECT_TRUE(replay.is_closed());
}

TEST_F(Sockets, AnyChangedBitOfAHelloIsRefused) {
  const Nonce challenge = *fresh_nonce();
  const auto message = encode_hello(hello_of_rank_0(), secret, challenge);
  ASSERT_EQ(message.size(), hello_bytes);
  ASSERT_TRUE(decode_hello(message, secret, challenge).ok());
  EXPECT_FALSE(decode_hello(message, "another secret", challenge).ok());
  for (std::size_t bit = 0; bit < 8 * message.size(); ++bit) {
    auto changed = message;
    changed[bit / 8] ^= std::byte{1} << bit % 8;
    ASSERT_FALSE(decode_hello(changed, secret, challenge).ok()) << "bit " << bit;
  }
}

TEST_F(Sockets, AReplyProvesTheSecretToTheConnector) {
  const Nonce challenge = *fresh_nonce();
  const Hello hello = hello_of_rank_0();
  const auto message = encode_reply({.geometry = geometry}, secret, challenge, hello);
  ASSERT_EQ(message.size(), reply_bytes);
  EXPECT_TRUE(decode_reply(message, secret, challenge, hello).ok());
  EXPECT_FALSE(decode_reply(message, "guessed", challenge, hello).ok());
  Hello other_stream = hello;
  other_stream.stream = 1;
  EXPECT_FALSE(decode_reply(message, secret, challenge, other_stream).ok());
  EXPECT_FALSE(decode_reply(message, secret, *fresh_nonce(), hello).ok());
}

TEST_F(Sockets, FramesOutsideTheRegionAreViolations) {
  const std::vector<Frame> wrong{
      {.type = Frame::Type::put, .offset = 9'999, .bytes = 2},
      {.type = Frame::Type::put, .offset = 0, .bytes = 10'001},
      {.type = Frame::Type::piece, .offset = ~std::uint64_t{0}, .bytes = 1},
      {.type = Frame::Type::piece, .offset = 1, .bytes = ~std::uint64_t{0}},
      {.type = Frame::Type::put, .signal = 3, .offset = 0, .bytes = 1},
      {.type = Frame::Type::signal, .signal = 3, .value = 1},
      {.type = Frame::Type::signal, .value = 1},
      {.type = Frame::Type::signal, .signal = 0, .bytes = 1},
      {.type = Frame::Type::bye, .bytes = 8},
      {.type = static_cast<Frame::Type>(0)},
      {.type = static_cast<Frame::Type>(6)},
      {.type = static_cast<Frame::Type>(0xffffffff)},
  };
  for (const Frame& frame : wrong) {
    Victim victim;
    victim.peer.frame(frame);
    victim.peer.send(std::vector<std::byte>(4096, std::byte{0xff}));
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
  victim.peer.frame({.type = Frame::Type::piece, .offset = 4, .bytes = 1});
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
  EXPECT_NE(victim.progress_error().message.find("left"), std::string::npos);
}

TEST_F(Sockets, AnUnknownFaultIsAViolation) {
  Victim victim;
  victim.peer.frame({.type = Frame::Type::fault, .value = 0x12345678'00000001});
  EXPECT_EQ(victim.progress_error().peer, -1);
}

TEST_F(Sockets, AnEndInTheMiddleOfAFrameIsADeath) {
  Victim victim;
  victim.peer.frame({.type = Frame::Type::put, .offset = 0, .bytes = 100});
  victim.peer.send(std::vector<std::byte>(50));
  victim.peer.close();
  const Error told = until_error([&] { return victim.connection->check_peer(); });
  EXPECT_EQ(told.peer, 0);
  EXPECT_NE(told.message.find("died"), std::string::npos) << told.message;
}

TEST_F(Sockets, AnUnreachablePeerIsNamedAfterSomeAttempts) {
  Job job(sockets(), 1);
  std::string nobody;
  {
    Job other(sockets(), 1);
    nobody = other.transports[0]->address();
  }
  auto connection = must(job.transports[0]->connect(
      {.key = {}, .self = 0, .peer = 1, .peer_address = nobody, .geometry = geometry}));
  const Error told = until_error([&]() -> Status {
    job.progress();
    auto ready = connection->ready();
    return ready.ok() ? Status{} : Status(ready.take_error());
  });
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
  for (const char* streams : {"1", "3", "16"}) {
    ASSERT_TRUE(settings().set(Setting::socket_streams, streams).ok());
    Job job(sockets(), 2);
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
  ASSERT_TRUE(settings().set(Setting::socket_streams, "17").ok());
  const auto refused = transport::socket::make_transport(Job::options("x", 0));
  EXPECT_FALSE(refused.ok());
  ASSERT_TRUE(settings().set(Setting::socket_streams, "2").ok());
}

}  // namespace
}  // namespace unisono::test
