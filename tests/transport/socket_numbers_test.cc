// Over several rails every frame has a number: what a receiver takes in whatever order, what it
// tells of it, and what a sender gives again.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <optional>

#include "transport/socket/inbox.h"
#include "transport/socket/retained.h"

namespace unisono::test {
namespace {

using namespace transport;
using namespace transport::socket;

constexpr Geometry geometry{.region_bytes = 1000, .signals = 2};
constexpr int peer = 1;
using Bytes = std::vector<std::byte>;

class SocketNumbers : public testing::Test {
 protected:
  SocketNumbers() {
    for (int i = 0; i < 2; ++i) {
      int ends[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
      streams_.push_back(std::make_unique<Stream>(sys::Socket(ends[0]), *poller_));
      others_.emplace_back(ends[1]);
    }
    for (auto& signal : signals_) signal.store(0);
    inbox_.emplace(streams_, region_.data(), exposed_, gets_, signals_.data(), geometry, peer, 2,
                   Numbers::of_all);
  }

  // Whether the inbox takes it.
  bool brings(std::size_t stream, Frame frame, std::uint64_t number) {
    frame.set_number(number);
    Bytes bytes(frame_bytes + frame.bytes);
    std::ranges::copy(encode(frame), bytes.begin());
    const iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
    EXPECT_EQ(sys::send_some(others_[stream], {&part, 1}).bytes, bytes.size());
    streams_[stream]->readiness().readable.store(true);
    const Status status = inbox_->receive();
    if (!status.ok()) {
      EXPECT_EQ(status.error().peer, peer) << status.error().message;
    }
    return status.ok();
  }
  std::uint64_t signal() const { return signals_[0].load(); }

  static Frame signal_of(std::uint64_t value) {
    return {.type = Frame::Type::signal, .signal = 0, .value = value};
  }
  static constexpr Frame piece{.type = Frame::Type::piece, .bytes = 100};
  static constexpr Frame put{.type = Frame::Type::put, .bytes = 10};
  static constexpr Frame get{.type = Frame::Type::get, .value = 1, .pieces = 5};
  static constexpr Frame answer{.type = Frame::Type::answer, .bytes = 100};
  static constexpr Frame acknowledge{.type = Frame::Type::acknowledge};
  static constexpr Frame closed{.type = Frame::Type::closed, .value = 1};

  std::unique_ptr<Poller> poller_ = *Poller::make();
  Streams streams_;
  std::vector<sys::Socket> others_;
  Bytes region_ = Bytes(geometry.region_bytes);
  std::array<std::atomic<std::uint64_t>, geometry.signals> signals_;
  ExposedMemory exposed_{0, peer};
  Gets gets_{peer};
  std::optional<Inbox> inbox_;
};

TEST_F(SocketNumbers, ASignalWaitsForAllThatHasSmallerNumbers) {
  EXPECT_TRUE(brings(1, signal_of(30), 5));
  EXPECT_TRUE(brings(0, signal_of(20), 3));
  EXPECT_TRUE(brings(1, put, 4));
  EXPECT_TRUE(brings(0, piece, 1));
  EXPECT_TRUE(brings(1, get, 2));
  EXPECT_EQ(signal(), 0U);
  EXPECT_TRUE(brings(1, signal_of(10), 0));
  EXPECT_EQ(signal(), 30U);
}

TEST_F(SocketNumbers, GetsAreAnsweredInTheOrderOfTheirNumbers) {
  Frame second = get;
  second.offset = 7;
  EXPECT_TRUE(brings(1, second, 1));
  EXPECT_TRUE(gets_.asked().empty());
  EXPECT_TRUE(brings(0, get, 0));
  ASSERT_EQ(gets_.asked().size(), 2U);
  EXPECT_EQ(gets_.asked()[0].offset, 0U);
  EXPECT_EQ(gets_.asked()[1].offset, 7U);
}

TEST_F(SocketNumbers, ANumberThatComesAgainIsAViolation) {
  EXPECT_TRUE(brings(0, put, 0));
  EXPECT_FALSE(brings(1, piece, 0));
}

TEST_F(SocketNumbers, AGetsNumberThatComesAgainIsAViolation) {
  EXPECT_TRUE(brings(0, put, 0));
  EXPECT_FALSE(brings(1, get, 0));
}

TEST_F(SocketNumbers, ANumberThatNoSenderWouldReachIsAViolation) {
  EXPECT_FALSE(brings(0, put, Arrivals::window));
}

TEST_F(SocketNumbers, PiecesAreAcknowledgedAtOnceAndOthersByTheDozen) {
  std::uint64_t number = 0;
  EXPECT_TRUE(brings(0, put, number++));
  EXPECT_FALSE(inbox_->acknowledgement());
  EXPECT_TRUE(brings(0, piece, number++));
  EXPECT_EQ(inbox_->acknowledgement(), number);
  inbox_->told_acknowledgement();
  EXPECT_FALSE(inbox_->acknowledgement());
  for (int i = 0; i < 31; ++i) EXPECT_TRUE(brings(0, put, number++));
  EXPECT_FALSE(inbox_->acknowledgement());
  EXPECT_TRUE(brings(0, put, number++));
  EXPECT_EQ(inbox_->acknowledgement(), number);
}

// A piece that the gap before it holds back is awaited until it is acknowledged itself.
TEST_F(SocketNumbers, APieceBehindAGapIsAcknowledgedWhenThatIsFilled) {
  EXPECT_TRUE(brings(0, piece, 0));
  EXPECT_TRUE(brings(0, piece, 2));
  EXPECT_EQ(inbox_->acknowledgement(), 1U);
  inbox_->told_acknowledgement();
  EXPECT_TRUE(brings(1, put, 1));
  EXPECT_EQ(inbox_->acknowledgement(), 3U);
}

TEST_F(SocketNumbers, WhatAStreamBroughtIsCountedUntilItIsClosed) {
  EXPECT_TRUE(brings(1, put, 0));
  EXPECT_TRUE(brings(1, piece, 1));
  EXPECT_TRUE(brings(1, acknowledge, 0));
  EXPECT_TRUE(brings(0, put, 2));
  EXPECT_EQ(inbox_->came(1), 2U);
  inbox_->close(1);
  EXPECT_TRUE(brings(1, signal_of(1), 3));
  EXPECT_EQ(inbox_->came(1), 2U);
  EXPECT_EQ(signal(), 0U);
  EXPECT_EQ(inbox_->acknowledgement(), 3U) << "the last one may have been lost";
}

// Its bytes were let in, and are again on the next stream.
TEST_F(SocketNumbers, AnAnswerThatWasNotConfirmedComesAgain) {
  Bytes destination(100);
  gets_.add(destination.data(), destination.size());
  EXPECT_TRUE(brings(1, answer, 0));
  inbox_->close(1);
  EXPECT_EQ(inbox_->came(1), 0U);
  EXPECT_TRUE(brings(0, answer, 0));
  EXPECT_TRUE(brings(0, {.type = Frame::Type::whole}, 0));
  EXPECT_EQ(gets_.completed(), 1U);
  EXPECT_EQ(inbox_->acknowledgement(), 1U);
}

TEST_F(SocketNumbers, APeerMayTellAgainWhatItClosedButNothingElse) {
  EXPECT_TRUE(brings(0, closed, 4));
  EXPECT_TRUE(brings(0, closed, 4));
  EXPECT_EQ(inbox_->came_at_peer(1), 4U);
  EXPECT_FALSE(brings(0, closed, 5));
}

TEST_F(SocketNumbers, AStreamThatIsNotCannotBeClosed) {
  Frame third = closed;
  third.value = 2;
  EXPECT_FALSE(brings(0, third, 0));
}

// Where a stream was lost, a bye counts when all before it is there.
TEST_F(SocketNumbers, AByeSaysHowManyFramesThereWere) {
  EXPECT_TRUE(brings(0, put, 0));
  inbox_->close(1);
  EXPECT_TRUE(brings(0, {.type = Frame::Type::bye}, 2));
  EXPECT_TRUE(inbox_->over());
  EXPECT_FALSE(inbox_->said_bye());
}

// An announcement may be said again on a slow stream after its stream has come back.
TEST_F(SocketNumbers, AnAnnouncementOfAStreamBeforeIsNoNews) {
  EXPECT_TRUE(brings(0, closed, 0));
  inbox_->close(1);
  inbox_->reopen(1);
  EXPECT_EQ(inbox_->generation(1), 1U);
  EXPECT_FALSE(inbox_->is_closed(1));
  EXPECT_TRUE(brings(0, closed, 0));
  EXPECT_FALSE(inbox_->came_at_peer(1));
  Frame again = closed;
  again.offset = 1;
  EXPECT_TRUE(brings(0, again, 0));
  EXPECT_TRUE(inbox_->came_at_peer(1));
}

// The peer joined, and this end did not hear of it before the stream ended.
TEST_F(SocketNumbers, AStreamThatIsBackAtThePeerAloneIsClosedHere) {
  EXPECT_TRUE(brings(0, closed, 0));
  inbox_->close(1);
  Frame again = closed;
  again.offset = 1;
  EXPECT_TRUE(brings(0, again, 0));
  EXPECT_EQ(inbox_->generation(1), 1U);
  EXPECT_TRUE(inbox_->is_closed(1));
  EXPECT_EQ(inbox_->came(1), 0U);
}

TEST_F(SocketNumbers, AStreamThatCannotHaveComeBackIsAViolation) {
  Frame again = closed;
  again.offset = 1;
  EXPECT_FALSE(brings(0, again, 0)) << "it is open";
}

TEST_F(SocketNumbers, AStreamThatIsBackTooOftenIsAViolation) {
  EXPECT_TRUE(brings(0, closed, 0));
  inbox_->close(1);
  Frame again = closed;
  again.offset = 2;
  EXPECT_FALSE(brings(0, again, 0));
}

TEST_F(SocketNumbers, FramesOnAStreamThatIsNotThereCannotHaveCome) {
  EXPECT_TRUE(brings(0, closed, 0));
  inbox_->close(1);
  Frame again = closed;
  again.offset = 1;
  EXPECT_FALSE(brings(0, again, 3));
}

TEST(SocketRetained, WhatDidNotComeOnAStreamIsGivenAgainInOrder) {
  Retained retained(2);
  for (std::size_t number = 0; number < 6; ++number) {
    retained.add({.type = Frame::Type::piece, .bytes = 1}, nullptr, 0, number % 2, true);
    retained.left(number);
  }
  EXPECT_TRUE(retained.lose(1, 1, peer).ok());
  ASSERT_EQ(retained.lost().size(), 2U);
  EXPECT_EQ(retained.lost()[0], 3U);
  EXPECT_EQ(retained.lost()[1], 5U);
  EXPECT_FALSE(retained.lose(0, 4, peer).ok()) << "three were given to it";
}

// Frames of the stream before do not go again when the one in its place ends.
TEST(SocketRetained, AStreamThatIsBackCountsAnew) {
  Retained retained(2);
  const auto give = [&] {
    retained.add({.type = Frame::Type::signal, .signal = 0}, nullptr, Retained::no_put, 1, true);
    retained.left(retained.next() - 1);
  };
  for (int i = 0; i < 3; ++i) give();
  ASSERT_TRUE(retained.lose(1, 2, peer).ok());
  ASSERT_EQ(retained.lost().size(), 1U);
  EXPECT_EQ(retained.lost()[retained.lost().begin()], 2U);
  retained.give(retained[2], 0);
  retained.lost_is_given();
  retained.reopen(1);
  for (int i = 0; i < 2; ++i) give();
  ASSERT_TRUE(retained.lose(1, 1, peer).ok());
  ASSERT_EQ(retained.lost().size(), 1U);
  EXPECT_EQ(retained.lost()[retained.lost().begin()], 4U);
}

TEST(SocketRetained, CopiesWhatIsShortAndGivesTheMemoryBack) {
  Retained retained(1);
  const std::size_t empty = retained.memory_bytes();
  Bytes source(300, std::byte{5});
  retained.add({.type = Frame::Type::put, .bytes = 300}, source.data(), 7, 0, true);
  retained.add({.type = Frame::Type::piece, .bytes = 300}, source.data(), 8, 0, false);
  const auto copied = retained.left(0);
  EXPECT_EQ(copied.put, 7U);
  EXPECT_FALSE(copied.is_awaited);
  EXPECT_NE(retained[0].payload, source.data());
  EXPECT_TRUE(std::equal(source.begin(), source.end(), retained[0].payload));
  const auto kept = retained.left(1);
  EXPECT_EQ(kept.put, 8U);
  EXPECT_TRUE(kept.is_awaited);
  EXPECT_EQ(retained[1].payload, source.data());
  EXPECT_GE(retained.memory_bytes(), empty + 300);
  retained.pop();
  retained.drop_payloads();
  EXPECT_TRUE(retained[1].is_lost());
}

TEST(SocketRetained, AnAcknowledgementOfWhatWasNotSentIsAViolation) {
  auto poller = *Poller::make();
  int ends[2];
  Streams streams;
  std::vector<sys::Socket> others;
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    streams.push_back(std::make_unique<Stream>(sys::Socket(ends[0]), *poller));
    streams.back()->readiness().writable.store(false);
    others.emplace_back(ends[1]);
  }
  Outbox outbox(streams, 1, 2);
  const Bytes source(100);
  ASSERT_TRUE(outbox.add(source.data(), source.size(), 0, {}));
  outbox.send();
  EXPECT_FALSE(outbox.acknowledged(1, peer).ok()) << "it waits on its stream";
  EXPECT_FALSE(outbox.acknowledged(2, peer).ok()) << "there is one";
  streams[0]->readiness().writable.store(true);
  outbox.send();
  EXPECT_TRUE(outbox.acknowledged(1, peer).ok());
}

}  // namespace
}  // namespace unisono::test
