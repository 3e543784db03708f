// How puts become frames on one stream, on several, and on several rails; and the queue behind it.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <numeric>
#include <random>

#include "transport/socket/outbox.h"
#include "transport/socket/ring.h"

namespace unisono::test {
namespace {

using namespace transport;
using namespace transport::socket;

constexpr std::size_t tile_bytes = (std::size_t{32} << 10) + 64;
constexpr int signals = 2;

// An outbox over streams whose other ends are read here.
class Sender {
 public:
  Sender(std::size_t streams, std::size_t rails) : poller_(*Poller::make()) {
    for (std::size_t i = 0; i < streams; ++i) {
      int ends[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
      constexpr int room = 4 << 20;
      EXPECT_EQ(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
      streams_.push_back(std::make_unique<Stream>(sys::Socket(ends[0]), *poller_));
      EXPECT_TRUE(streams_.back()->watch().ok());
      ends_.emplace_back(ends[1]);
    }
    outbox_.emplace(streams_, signals, rails);
  }

  Outbox& outbox() { return *outbox_; }
  Stream& stream(std::size_t number) { return *streams_[number]; }
  // Until frames() looks at the poller, the streams take nothing.
  void block() {
    for (auto& stream : streams_) stream->readiness().writable.store(false);
  }
  std::size_t memory_bytes() const { return streams_[0]->memory_bytes(); }

  // What has come on a stream, as frames; the payload of each is left out.
  std::vector<Frame> frames(std::size_t stream) {
    std::vector<Frame> out;
    while (const auto frame = next_frame(stream)) out.push_back(*frame);
    return out;
  }
  std::optional<Frame> next_frame(std::size_t stream) {
    FrameBytes head;
    if (!take(stream, head)) return std::nullopt;
    const Frame frame = decode(head);
    std::vector<std::byte> payload(frame.bytes);
    EXPECT_TRUE(take(stream, payload));
    return frame;
  }

 private:
  bool take(std::size_t stream, std::span<std::byte> bytes) {
    std::size_t have = 0;
    while (have < bytes.size()) {
      const iovec part{.iov_base = bytes.data() + have, .iov_len = bytes.size() - have};
      const sys::Transferred got = sys::receive_some(ends_[stream], {&part, 1});
      if (got.would_block) {
        acknowledge();
        if (have == 0 && outbox_->completed() == outbox_->started()) return false;
        poller_->poll();
        outbox_->send();
        continue;
      }
      have += got.bytes;
    }
    return true;
  }

  // What a peer over several rails does with all that has left.
  void acknowledge() {
    for (const auto& stream : streams_)
      if (!stream->nothing_waits()) return;
    EXPECT_TRUE(outbox_->acknowledged(outbox_->next_number(), 1).ok());
  }

  std::unique_ptr<Poller> poller_;
  std::vector<sys::Socket> ends_;
  Streams streams_;
  std::optional<Outbox> outbox_;
};

std::vector<std::byte> bytes_of(std::size_t bytes) { return std::vector<std::byte>(bytes); }

TEST(SocketOutbox, OneStreamTakesAnyPutAsOneFrameWithItsSignal) {
  Sender sender(1, 1);
  const auto data = bytes_of(std::size_t{1} << 20);
  ASSERT_TRUE(sender.outbox().add(data.data(), data.size(), 7, {1, 9}));
  sender.outbox().send();
  const std::vector<Frame> frames = sender.frames(0);
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].type, Frame::Type::put);
  EXPECT_EQ(frames[0].bytes, data.size());
  EXPECT_EQ(frames[0].offset, 7u);
  EXPECT_EQ(frames[0].signal, 1u);
  EXPECT_EQ(frames[0].value, 9u);
}

TEST(SocketOutbox, StreamsOnOneNetworkTakeTilesInTurn) {
  Sender sender(2, 1);
  const auto data = bytes_of(tile_bytes);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(sender.outbox().add(data.data(), data.size(), 0, {}));
  sender.outbox().send();
  for (std::size_t stream = 0; stream < 2; ++stream) {
    const std::vector<Frame> frames = sender.frames(stream);
    ASSERT_EQ(frames.size(), 2u) << "stream " << stream;
    for (const Frame& frame : frames) EXPECT_EQ(frame.bytes, tile_bytes);
  }
}

TEST(SocketOutbox, EachRailCarriesAnEqualPartOfEveryTile) {
  for (const std::size_t rails : {2, 3}) {
    Sender sender(rails, rails);
    const auto data = bytes_of(tile_bytes);
    ASSERT_TRUE(sender.outbox().add(data.data(), data.size(), 128, {0, 1}));
    sender.outbox().send();
    std::size_t next = 128;
    for (std::size_t rail = 0; rail < rails; ++rail) {
      const std::vector<Frame> frames = sender.frames(rail);
      ASSERT_EQ(frames.size(), rail == 0 ? 2u : 1u) << rails << " rails, rail " << rail;
      EXPECT_EQ(frames[0].type, Frame::Type::piece);
      EXPECT_EQ(frames[0].offset, next);
      EXPECT_NEAR(static_cast<double>(frames[0].bytes),
                  static_cast<double>(tile_bytes) / static_cast<double>(rails), 128);
      next += frames[0].bytes;
      if (rail == 0) {
        EXPECT_EQ(frames[1].type, Frame::Type::signal);
        EXPECT_EQ(frames[1].pieces, rails);
      }
    }
    EXPECT_EQ(next, 128 + tile_bytes);
  }
}

TEST(SocketOutbox, ShortPutsStayOnTheFirstRail) {
  Sender sender(2, 2);
  const auto data = bytes_of(4096);
  ASSERT_TRUE(sender.outbox().add(data.data(), data.size(), 0, {0, 1}));
  sender.outbox().send();
  EXPECT_EQ(sender.frames(0).size(), 1u);
  EXPECT_TRUE(sender.frames(1).empty());
}

TEST(SocketOutbox, TakesSoManyPutsAndTheirMemoryGrowsWithThem) {
  Sender sender(1, 1);
  EXPECT_LT(sender.outbox().memory_bytes() + sender.memory_bytes(), 1024u);
  // The stream's other end takes nothing, so that puts wait.
  const auto data = bytes_of(std::size_t{8} << 20);
  std::size_t taken = 0;
  while (taken < 1000 && sender.outbox().add(data.data(), data.size(), 0, {})) ++taken;
  EXPECT_EQ(taken, 256u);
  EXPECT_GT(sender.outbox().memory_bytes(), 256u * 32);
  EXPECT_EQ(sender.outbox().completed(), 0u);
  sender.outbox().drop();
  EXPECT_EQ(sender.outbox().completed(), sender.outbox().started());
}

// What a stream holds of frames that wait.
std::size_t memory_of_most_frames() {
  Sender sender(1, 1);
  while (sender.stream(0).has_room()) sender.stream(0).push({}, nullptr, Outbox::no_put);
  return sender.memory_bytes();
}

TEST(SocketOutbox, AStreamHoldsSoManyFramesAtMostWhateverTheyAre) {
  const auto data = bytes_of(std::size_t{1} << 20);
  struct Case {
    std::size_t streams, bytes;
    int signal;
  };
  for (const Case& one : {Case{1, 100, -1},
                          {1, 0, 0},
                          {2, data.size(), -1},
                          {2, 17 << 10, 0},
                          {3, 17 << 10, 0},
                          {4, 17 << 10, 0}}) {
    Sender sender(one.streams, 1);
    sender.block();
    std::uint64_t added = 0;
    for (std::uint64_t i = 0; i < 200; ++i) {
      const Signal signal{one.signal, i + 1};
      added += sender.outbox().add(data.data(), one.bytes, 0, signal) ? 1 : 0;
      sender.outbox().send();
    }
    EXPECT_EQ(added, 200U);
    EXPECT_FALSE(sender.stream(0).has_room());
    EXPECT_LE(sender.memory_bytes(), memory_of_most_frames()) << one.bytes << " bytes";
  }
}

TEST(SocketOutbox, ASignalThatWaitsIsSentOnceWithItsLatestValue) {
  Sender sender(1, 1);
  sender.block();
  const auto data = bytes_of(100);
  for (std::uint64_t i = 0; i < Stream::max_waiting; ++i)
    ASSERT_TRUE(sender.outbox().add(data.data(), data.size(), 0, {}));
  sender.outbox().send();
  for (const std::uint64_t value : {5, 9, 7})
    ASSERT_TRUE(sender.outbox().add(nullptr, 0, 0, {1, value}));
  EXPECT_LT(sender.outbox().completed(), sender.outbox().started());
  const std::vector<Frame> frames = sender.frames(0);
  ASSERT_EQ(frames.size(), Stream::max_waiting + 1);
  EXPECT_EQ(frames.back().type, Frame::Type::signal);
  EXPECT_EQ(frames.back().value, 9U);
  EXPECT_EQ(sender.outbox().completed(), sender.outbox().started());
}

// Its frame leaves later, and counts for no put that came after it.
TEST(SocketOutbox, WhatWasDroppedWhenItWasPartlySentIsNoOthers) {
  Sender sender(1, 1);
  const auto data = bytes_of(std::size_t{32} << 20);
  ASSERT_TRUE(sender.outbox().add(data.data(), data.size(), 0, {}));
  sender.outbox().send();
  EXPECT_EQ(sender.outbox().completed(), 0U);
  sender.outbox().drop();
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(sender.outbox().add(data.data(), 100, 0, {}));
  // More than the kernel takes, and in the place that the dropped one had in a ring of eight.
  ASSERT_TRUE(sender.outbox().add(data.data(), data.size(), 0, {}));
  EXPECT_EQ(sender.outbox().completed(), 1U);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(sender.next_frame(0).has_value());
  EXPECT_EQ(sender.outbox().completed(), 8U);
  EXPECT_EQ(sender.frames(0).size(), 1U);
  EXPECT_EQ(sender.outbox().completed(), 9U);
}

TEST(SocketRing, KeepsItsItemsInOrderHoweverItGrows) {
  std::mt19937 random(std::random_device{}());
  Ring<int> ring;
  int pushed = 0;
  int popped = 0;
  for (int i = 0; i < 2000; ++i) {
    // Mostly pushes at first, mostly pops at last.
    if (static_cast<int>(random() % 2000) > i) {
      ring.push(pushed++);
    } else if (!ring.empty()) {
      ASSERT_EQ(ring[ring.begin()], popped++);
      ring.pop();
    }
    ASSERT_EQ(ring.size(), static_cast<std::uint64_t>(pushed - popped));
    for (std::uint64_t at = ring.begin(); at != ring.end(); ++at)
      ASSERT_EQ(ring[at], static_cast<int>(at));
  }
  EXPECT_GT(popped, 100);
}

TEST(SocketRing, TruncatesFromANumberOn) {
  Ring<int> ring;
  for (int i = 0; i < 9; ++i) ring.push(i);
  ring.pop();
  ring.truncate(5);
  EXPECT_EQ(ring.size(), 4u);
  ring.push(50);
  EXPECT_EQ(ring[5], 50);
  EXPECT_EQ(ring[1], 1);
}

}  // namespace
}  // namespace unisono::test
