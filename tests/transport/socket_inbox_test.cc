// Signals wait for the bytes before them, in whatever order the streams of a connection bring them.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>

#include "base/str.h"
#include "transport/fault.h"
#include "transport/socket/inbox.h"
#include "transport/socket/outbox.h"

namespace unisono::test {
namespace {

using namespace transport;
using namespace transport::socket;

constexpr Geometry geometry{.region_bytes = std::size_t{1} << 20, .signals = 3};
constexpr int peer = 5;
constexpr int ranks = 8;
using Bytes = std::vector<std::byte>;

struct Ends {
  Ends(std::size_t count, Poller& poller) {
    for (std::size_t i = 0; i < count; ++i) {
      int pair[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
      constexpr int room = 4 << 20;
      for (const int end : pair)
        EXPECT_EQ(setsockopt(end, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
      streams.push_back(std::make_unique<Stream>(sys::Socket(pair[0]), poller));
      EXPECT_TRUE(streams.back()->watch().ok());
      others.emplace_back(pair[1]);
    }
  }
  Streams streams;
  std::vector<sys::Socket> others;
};

// An inbox whose streams' other ends are written here.
class Receiver {
 public:
  explicit Receiver(std::size_t streams, Numbers numbers = Numbers::of_pieces)
      : poller_(*Poller::make()), ends_(streams, *poller_) {
    for (auto& signal : signals_) signal.store(0);
    inbox_.emplace(ends_.streams, region_.data(), exposed_, gets_, signals_.data(), geometry, peer,
                   ranks, numbers);
  }

  void bring(std::size_t stream, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const iovec part{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
      const sys::Transferred sent = sys::send_some(ends_.others[stream], {&part, 1});
      ASSERT_EQ(sent.error, 0);
      bytes = bytes.subspan(sent.bytes);
      receive();
    }
  }
  void bring(std::size_t stream, const Frame& frame, std::byte fill = {}) {
    Bytes bytes(frame_bytes + frame.bytes, fill);
    std::ranges::copy(encode(frame), bytes.begin());
    bring(stream, bytes);
  }
  void end(std::size_t stream) {
    ends_.others[stream].close();
    receive();
  }
  // Everything that is there, whatever the poller has noticed.
  void receive() {
    for (auto& stream : ends_.streams) stream->readiness().readable.store(true);
    receive_readable();
  }
  void receive_readable() {
    Status status = inbox_->receive();
    if (!status.ok()) error_ = *status.take_error();
  }

  std::uint64_t signal(std::size_t index) const { return signals_[index].load(); }
  const std::byte* region() const { return region_.data(); }
  Inbox& inbox() { return *inbox_; }
  Gets& gets() { return gets_; }
  ExposedMemory& exposed() { return exposed_; }
  Readiness& readiness(std::size_t stream) { return ends_.streams[stream]->readiness(); }
  const sys::Socket& other(std::size_t stream) { return ends_.others[stream]; }
  const std::optional<Error>& error() const { return error_; }

 private:
  std::unique_ptr<Poller> poller_;
  Ends ends_;
  Bytes region_ = Bytes(geometry.region_bytes);
  std::array<std::atomic<std::uint64_t>, geometry.signals> signals_;
  ExposedMemory exposed_{0, peer};
  Gets gets_{peer};
  std::optional<Inbox> inbox_;
  std::optional<Error> error_;
};

Frame piece(std::size_t number) {
  return {.type = Frame::Type::piece, .offset = number % 100 * 100, .bytes = 100, .pieces = number};
}
Frame signal_after(std::uint64_t pieces, std::uint64_t value = 1) {
  return {.type = Frame::Type::signal, .signal = 0, .value = value, .pieces = pieces};
}

// A read of a stream that has nothing is a system call for nothing.
TEST(SocketInbox, ReadsAStreamWhenItIsReadableAndUntilItIsDrained) {
  Receiver receiver(1);
  const FrameBytes bytes = encode(signal_after(0));
  const iovec part{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  receiver.receive();
  EXPECT_FALSE(receiver.readiness(0).readable.load());
  ASSERT_EQ(sys::send_some(receiver.other(0), {&part, 1}).bytes, bytes.size());
  receiver.receive_readable();
  EXPECT_EQ(receiver.signal(0), 0U);
  receiver.receive();
  EXPECT_EQ(receiver.signal(0), 1U);
  EXPECT_FALSE(receiver.readiness(0).readable.load());
}

TEST(SocketInbox, ASignalWaitsForTheLastPieceWhicheverThatIs) {
  for (std::size_t streams = 1; streams <= 4; ++streams)
    for (std::size_t pieces = 1; pieces <= 9; ++pieces)
      for (std::size_t last_stream = 0; last_stream < std::min(streams, pieces); ++last_stream) {
        Receiver receiver(streams);
        // Stream 0 brings its pieces before the signal; others may bring theirs later.
        std::vector<std::size_t> order;
        for (std::size_t stream = 0; stream < streams; ++stream)
          if (stream != last_stream) order.push_back(stream);
        order.push_back(last_stream);
        bool has_signal = false;
        std::size_t left = pieces;
        for (const std::size_t stream : order) {
          for (std::size_t number = stream; number < pieces; number += streams) {
            if (has_signal) {
              ASSERT_EQ(receiver.signal(0), 0u)
                  << left << " of " << pieces << " pieces are missing";
            }
            receiver.bring(stream, piece(number), std::byte{7});
            --left;
          }
          if (stream != 0) continue;
          receiver.bring(0, signal_after(pieces));
          has_signal = true;
          ASSERT_EQ(receiver.signal(0), left == 0 ? 1u : 0u);
        }
        ASSERT_FALSE(receiver.error());
        ASSERT_EQ(receiver.signal(0), 1u) << streams << " streams, " << pieces << " pieces";
      }
}

TEST(SocketInbox, ExposedMemoryThatWasUnmappedIsAnErrorOfItsOwner) {
  constexpr std::size_t bytes = 1 << 16;
  Receiver receiver(1);
  void* const gone =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(gone, MAP_FAILED);
  const auto exposed = receiver.exposed().add(gone, bytes);
  ASSERT_TRUE(exposed.ok());
  receiver.bring(0, encode({.type = Frame::Type::piece, .bytes = bytes, .value = exposed->key}));
  ASSERT_EQ(munmap(gone, bytes), 0);
  receiver.bring(0, Bytes(bytes));
  ASSERT_TRUE(receiver.error());
  EXPECT_EQ(receiver.error()->kind, ErrorKind::misuse);
  EXPECT_NE(receiver.error()->message.find("unmapped"), std::string::npos);
}

TEST(SocketInbox, TheFirstFaultThatIsToldCounts) {
  Receiver receiver(2);
  for (const int culprit : {3, 6})
    receiver.bring(static_cast<std::size_t>(culprit % 2),
                   {.type = Frame::Type::fault,
                    .value = pack({.kind = Fault::Kind::failed, .rank = culprit})});
  ASSERT_FALSE(receiver.error());
  ASSERT_TRUE(receiver.inbox().fault());
  EXPECT_EQ(receiver.inbox().fault()->rank, 3);
}

TEST(SocketInbox, APieceThatHasBegunToComeIsNotThereYet) {
  Receiver receiver(2);
  receiver.bring(0, piece(0));
  receiver.bring(0, signal_after(2));
  Bytes bytes(frame_bytes + 100, std::byte{3});
  std::ranges::copy(encode(piece(1)), bytes.begin());
  for (const std::byte& byte : bytes) {
    ASSERT_EQ(receiver.signal(0), 0u);
    receiver.bring(1, {&byte, 1});
  }
  EXPECT_EQ(receiver.signal(0), 1u);
}

TEST(SocketInbox, AShortPutsSignalWaitsForThePiecesBeforeIt) {
  Receiver receiver(2);
  receiver.bring(0, piece(0));
  receiver.bring(
      0,
      {.type = Frame::Type::put, .signal = 1, .offset = 500, .bytes = 4, .value = 9, .pieces = 2});
  EXPECT_EQ(receiver.signal(1), 0u);
  receiver.bring(1, piece(1));
  EXPECT_EQ(receiver.signal(1), 9u);
}

TEST(SocketInbox, SignalsAreLetOutInTheOrderOfTheirPieces) {
  Receiver receiver(3);
  receiver.bring(0, piece(0));
  receiver.bring(0, signal_after(1, 10));
  receiver.bring(0, signal_after(2, 20));
  receiver.bring(0, signal_after(3, 30));
  EXPECT_EQ(receiver.signal(0), 10u);
  receiver.bring(2, piece(2));
  EXPECT_EQ(receiver.signal(0), 10u) << "piece 1 is missing";
  receiver.bring(1, piece(1));
  EXPECT_EQ(receiver.signal(0), 30u);
}

// Bytes that came twice may have landed after their place was used again.
TEST(SocketInbox, APieceThatComesAgainIsAViolation) {
  for (const std::uint64_t first : {0, 5}) {
    Receiver receiver(2);
    receiver.bring(0, piece(first));
    EXPECT_FALSE(receiver.error());
    receiver.bring(1, piece(first));
    ASSERT_TRUE(receiver.error());
    EXPECT_EQ(receiver.error()->peer, peer);
    EXPECT_NE(receiver.error()->message.find(str("piece ", first, " again, on stream 1")),
              std::string::npos);
  }
}

// The stream's further bytes stay in the kernel, so that memory is bounded.
TEST(SocketInbox, AStreamFarAheadIsReadOnWhenTheOthersHaveCaughtUp) {
  constexpr std::uint64_t far = Arrivals::window;
  Receiver receiver(2);
  receiver.bring(0, piece(1));
  receiver.bring(0, piece(far + 1));
  receiver.bring(0, signal_after(0));
  EXPECT_EQ(receiver.signal(0), 0U) << "it was read behind a piece that is not counted";
  const std::size_t before = receiver.inbox().memory_bytes();
  for (int i = 0; i < 100; ++i) receiver.bring(0, signal_after(0, 7));
  EXPECT_EQ(receiver.inbox().memory_bytes(), before);
  // Piece 0 lets the window move on, in the same look.
  receiver.bring(1, piece(0));
  EXPECT_EQ(receiver.signal(0), 7U);
  EXPECT_FALSE(receiver.error());
}

TEST(SocketInbox, CountsOfPiecesThatNobodyCanHaveCutHoldNothingElseUp) {
  for (const std::uint64_t pieces :
       {~std::uint64_t{0}, ~std::uint64_t{0} - 1, std::uint64_t{1} << 63}) {
    Receiver receiver(3);
    receiver.bring(0, signal_after(0, 1));
    receiver.bring(0, signal_after(pieces, 2));
    EXPECT_EQ(receiver.signal(0), 1u);
    EXPECT_FALSE(receiver.error());
    receiver.bring(0, signal_after(1, 3));
    ASSERT_TRUE(receiver.error()) << "a count that goes back";
    EXPECT_EQ(receiver.error()->peer, peer);
    EXPECT_EQ(receiver.signal(0), 1u);
  }
}

TEST(SocketInbox, IsOverWhenEveryStreamHasSaidByeOrOneHasBroken) {
  {
    Receiver receiver(2);
    receiver.bring(1, {.type = Frame::Type::bye});
    receiver.bring(0, signal_after(1));
    EXPECT_FALSE(receiver.inbox().over());
    receiver.bring(0, {.type = Frame::Type::bye});
    EXPECT_TRUE(receiver.inbox().over());
    EXPECT_TRUE(receiver.inbox().said_bye());
  }
  for (const std::size_t cut : {0, 1}) {
    // The other stream lives, or has said bye.
    for (const bool other_leaves : {false, true}) {
      Receiver receiver(2);
      if (other_leaves) receiver.bring(1 - cut, {.type = Frame::Type::bye});
      EXPECT_FALSE(receiver.inbox().over());
      receiver.end(cut);
      EXPECT_TRUE(receiver.inbox().over()) << "stream " << cut << " was cut between two frames";
      EXPECT_FALSE(receiver.inbox().said_bye());
    }
  }
}

TEST(SocketInbox, NothingFollowsAByeOnItsStream) {
  for (const std::size_t stream : {0, 1}) {
    Receiver receiver(2);
    receiver.bring(stream, {.type = Frame::Type::bye});
    EXPECT_FALSE(receiver.error());
    receiver.bring(stream, piece(0));
    ASSERT_TRUE(receiver.error());
    EXPECT_NE(receiver.error()->message.find("after it had closed"), std::string::npos);
  }
}

TEST(SocketInbox, PutsAndSignalsBelongOnTheFirstStream) {
  for (const Frame& frame :
       {signal_after(0), Frame{.type = Frame::Type::put, .offset = 0, .bytes = 1}}) {
    Receiver receiver(2);
    receiver.bring(1, frame);
    ASSERT_TRUE(receiver.error());
    EXPECT_EQ(receiver.signal(0), 0u);
  }
}

Frame answer(std::uint64_t get, std::size_t offset, std::size_t bytes, std::uint64_t number = 0) {
  return {.type = Frame::Type::answer,
          .offset = offset,
          .bytes = bytes,
          .value = get,
          .pieces = number};
}
constexpr Frame confirmation{.type = Frame::Type::whole};

TEST(SocketInbox, AGetIsCompleteWhenEachOfItsPiecesIsConfirmed) {
  Receiver receiver(2);
  Bytes first(150), second(50);
  receiver.gets().add(first.data(), first.size());
  receiver.gets().add(nullptr, 0);
  receiver.gets().add(second.data(), second.size());
  EXPECT_EQ(receiver.gets().started(), 3u);
  receiver.bring(1, answer(1, 0, 50), std::byte{2});
  receiver.bring(1, confirmation);
  receiver.bring(0, answer(0, 0, 100, 1), std::byte{1});
  receiver.bring(0, confirmation);
  receiver.bring(1, answer(0, 100, 50, 2), std::byte{1});
  EXPECT_EQ(receiver.gets().completed(), 0u);
  receiver.bring(1, confirmation);
  EXPECT_EQ(receiver.gets().completed(), 3u);
  EXPECT_EQ(first, Bytes(150, std::byte{1}));
  EXPECT_EQ(second, Bytes(50, std::byte{2}));
  EXPECT_FALSE(receiver.error());
}

// What the owner did not confirm may be zeros.
TEST(SocketInbox, AnAnswerThatIsFollowedByAFaultCompletesNothing) {
  Receiver receiver(1);
  Bytes destination(100);
  receiver.gets().add(destination.data(), destination.size());
  receiver.bring(0, answer(0, 0, 100));
  receiver.bring(0, {.type = Frame::Type::fault, .value = std::uint64_t{1} << 32 | peer});
  receiver.bring(0, confirmation);
  ASSERT_TRUE(receiver.error());
  EXPECT_EQ(receiver.gets().completed(), 0u);
}

TEST(SocketInbox, AnswersToNoGetPastItsEndOrTwiceAreViolations) {
  constexpr std::uint64_t huge = ~std::uint64_t{0};
  for (const Frame& wrong : {answer(1, 0, 10), answer(huge, 0, 10), answer(0, 91, 10),
                             answer(0, huge, 10), answer(0, 101, 1), answer(0, 20, 60)}) {
    Receiver receiver(2);
    Bytes destination(300, std::byte{7});
    receiver.gets().add(destination.data() + 100, 100);
    receiver.bring(0, answer(0, 0, 50), std::byte{7});
    EXPECT_FALSE(receiver.error());
    receiver.bring(1, wrong, std::byte{1});
    ASSERT_TRUE(receiver.error()) << wrong.value << " at " << wrong.offset;
    EXPECT_EQ(receiver.error()->peer, peer);
    EXPECT_EQ(destination, Bytes(300, std::byte{7}));
  }
}

TEST(SocketInbox, GetsThatCannotBeAreViolations) {
  const Frame get{.type = Frame::Type::get, .offset = 3, .value = 1, .pieces = 10};
  Frame of_nothing = get, with_signal = get;
  of_nothing.pieces = 0;
  with_signal.signal = 0;
  for (const Frame& wrong : {of_nothing, with_signal, confirmation}) {
    Receiver receiver(1);
    receiver.bring(0, wrong);
    EXPECT_TRUE(receiver.error());
  }
  Receiver elsewhere(2);
  elsewhere.bring(1, get);
  EXPECT_TRUE(elsewhere.error());
  Receiver receiver(1);
  for (std::uint64_t i = 0; i < Gets::most; ++i) receiver.bring(0, get);
  EXPECT_FALSE(receiver.error());
  receiver.bring(0, get);
  ASSERT_TRUE(receiver.error());
  EXPECT_EQ(receiver.gets().asked().size(), Gets::most);
}

// An outbox's frames, brought in bits of any size by one stream far ahead of another: what a signal
// announces is there when it is seen.
TEST(SocketInbox, WhatASignalAnnouncesIsThereInWhateverOrderStreamsBringIt) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (std::size_t streams = 1; streams <= 4; ++streams)
    for (int round = 0; round < 8; ++round) {
      auto poller = *Poller::make();
      Ends sender(streams, *poller);
      const std::size_t rails = round % 2 == 0 ? 1 : streams;
      Outbox outbox(sender.streams, geometry.signals, rails);
      struct Put {
        std::size_t offset, end;
      };
      std::vector<Put> puts;
      Bytes source(geometry.region_bytes);
      for (std::byte& byte : source) byte = static_cast<std::byte>(1 + random() % 255);
      for (std::size_t at = 0; puts.size() < 12;) {
        const std::size_t bytes = 1 + random() % (random() % 3 == 0 ? 100'000 : 20'000);
        if (at + bytes > source.size()) break;
        puts.push_back({at, at + bytes});
        at += bytes;
        ASSERT_TRUE(outbox.add(source.data() + puts.back().offset, bytes, puts.back().offset,
                               {0, puts.size()}));
      }
      std::vector<Bytes> sent(streams);
      while (outbox.completed() != outbox.started()) {
        outbox.send();
        poller->poll();
        for (std::size_t i = 0; i < streams; ++i) {
          Bytes some(1 << 20);
          const iovec part{.iov_base = some.data(), .iov_len = some.size()};
          const auto got = sys::receive_some(sender.others[i], {&part, 1});
          sent[i].insert(sent[i].end(), some.begin(),
                         some.begin() + static_cast<std::ptrdiff_t>(got.bytes));
        }
        const bool all_left = std::ranges::all_of(
            sender.streams, [](const auto& stream) { return stream->nothing_waits(); });
        const Status acknowledged = outbox.acknowledged(all_left ? outbox.next_number() : 0, peer);
        ASSERT_TRUE(acknowledged.ok());
      }
      for (std::size_t i = 0; i < streams; ++i) {
        Bytes some(4 << 20);
        const iovec part{.iov_base = some.data(), .iov_len = some.size()};
        const auto got = sys::receive_some(sender.others[i], {&part, 1});
        sent[i].insert(sent[i].end(), some.begin(),
                       some.begin() + static_cast<std::ptrdiff_t>(got.bytes));
      }

      Receiver receiver(streams, Outbox::numbers_of(rails));
      std::vector<std::size_t> brought(streams);
      // One stream is far ahead of the others, or far behind.
      const std::size_t special = random() % streams;
      const bool ahead = random() % 2 == 0;
      for (bool more = true; more;) {
        more = false;
        for (std::size_t i = 0; i < streams; ++i) {
          const std::size_t left = sent[i].size() - brought[i];
          if (left == 0) continue;
          more = true;
          if ((i == special) != ahead && random() % 16 != 0) continue;
          const std::size_t part = std::min<std::size_t>(left, 1 + random() % 30'000);
          receiver.bring(i, std::span(sent[i]).subspan(brought[i], part));
          brought[i] += part;
          const std::uint64_t seen = receiver.signal(0);
          ASSERT_FALSE(receiver.error()) << receiver.error()->message;
          const std::size_t end = seen == 0 ? 0 : puts[seen - 1].end;
          ASSERT_EQ(std::memcmp(receiver.region(), source.data(), end), 0)
              << streams << " streams, signal " << seen;
        }
      }
      EXPECT_EQ(receiver.signal(0), puts.size());
    }
}

}  // namespace
}  // namespace unisono::test
