// Sealed frames as they leave a stream: in pieces, from the sender's memory or a buffer, and
// dropped half-way.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <random>

#include "transport/socket/inbox.h"
#include "transport/socket/stream.h"

namespace unisono::test {
namespace {

using namespace transport;
using namespace transport::socket;
using sys::Protection;
using Bytes = std::vector<std::byte>;

constexpr Geometry geometry{.region_bytes = std::size_t{4} << 20, .signals = 1};

struct Count final : SentFrames {
  void frame_sent(std::uint64_t token) override { tokens.push_back(token); }
  std::vector<std::uint64_t> tokens;
};

std::string protection_name(const testing::TestParamInfo<Protection>& which) {
  return std::string(sys::name(which.param));
}

class SocketSealer : public testing::TestWithParam<Protection> {
 protected:
  SocketSealer() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    const Key there = *fresh_key();
    const Key back = *fresh_key();
    stream_.emplace(sys::Socket(ends[0]), *poller_);
    other_.emplace(sys::Socket(ends[1]), *poller_);
    EXPECT_TRUE(stream_->watch().ok());
    EXPECT_TRUE(
        stream_->seal({.protection = GetParam(), .send_key = there, .receive_key = back}).ok());
    EXPECT_TRUE(
        other_->seal({.protection = GetParam(), .send_key = back, .receive_key = there}).ok());
    reader_.emplace(region_.data(), exposed_, gets_, geometry, 0, 3, other_->opener());
  }

  Bytes random_bytes(std::size_t bytes) {
    Bytes out(bytes);
    for (std::byte& byte : out) byte = static_cast<std::byte>(random_());
    return out;
  }
  void send() {
    poller_->poll();
    stream_->send(sent_);
  }
  // Reads some of what has come; frames that are whole.
  std::vector<Frame> read(std::size_t most) {
    std::vector<Frame> frames;
    const FrameReader::Room room = reader_->room();
    const std::array parts{
        iovec{.iov_base = room.payload, .iov_len = std::min(most, room.payload_bytes)},
        iovec{.iov_base = room.buffer, .iov_len = room.buffer_bytes}};
    const std::size_t count = room.payload_bytes > most ? 1 : 2;
    const auto got = sys::receive_some(
        other_->socket(), std::span(parts).first(count).subspan(room.payload_bytes == 0 ? 1 : 0));
    reader_->took(got.bytes);
    for (;;) {
      auto frame = reader_->next();
      EXPECT_TRUE(frame.ok()) << frame.error().describe();
      if (!frame.ok() || !*frame) return frames;
      frames.push_back(**frame);
    }
  }
  std::vector<Frame> read_all() {
    std::vector<Frame> frames;
    while (!stream_->nothing_waits()) {
      send();
      for (const Frame& frame : read(1 << 20)) frames.push_back(frame);
    }
    for (int i = 0; i < 8; ++i)
      for (const Frame& frame : read(1 << 20)) frames.push_back(frame);
    return frames;
  }

  const unsigned seed_ = std::random_device{}();
  std::mt19937 random_{seed_};
  std::unique_ptr<Poller> poller_ = *Poller::make();
  Bytes region_ = Bytes(geometry.region_bytes);
  std::optional<Stream> stream_, other_;
  ExposedMemory exposed_{0, 3};
  Gets gets_{3};
  std::optional<FrameReader> reader_;
  Count sent_;
};
INSTANTIATE_TEST_SUITE_P(All, SocketSealer,
                         testing::Values(Protection::authenticate, Protection::encrypt),
                         protection_name);

TEST_P(SocketSealer, FramesOfAllSizesArriveInTheirOrder) {
  SCOPED_TRACE(seed_);
  std::vector<Bytes> payloads;
  std::vector<Frame> pushed;
  std::size_t at = 0;
  for (const std::size_t bytes :
       {0, 1, 63'999, 0, 0, 65'536, 65'537, 15, 16, 17, 1'000'000, 0,       1, 1,
        1, 1, 1,      1, 1, 1,      1,      1,  1,  1,  1,         300'000, 0}) {
    payloads.push_back(random_bytes(bytes));
    pushed.push_back(bytes == 0
                         ? Frame{.type = Frame::Type::signal, .signal = 0, .value = pushed.size()}
                         : Frame{.type = Frame::Type::put, .offset = at, .bytes = bytes});
    stream_->push(pushed.back(), bytes == 0 ? nullptr : payloads.back().data(), pushed.size());
    at += bytes;
  }
  const auto before = payloads;
  std::vector<Frame> got;
  for (int turn = 0; got.size() < pushed.size() && turn < 1'000'000; ++turn) {
    if (random_() % 2 == 0) send();
    for (const Frame& frame : read(1 + random_() % 50'000)) got.push_back(frame);
  }
  ASSERT_EQ(got.size(), pushed.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].type, pushed[i].type);
    EXPECT_EQ(got[i].value, pushed[i].value);
    const auto* const landed = region_.data() + pushed[i].offset;
    EXPECT_TRUE(std::equal(payloads[i].begin(), payloads[i].end(), landed)) << i;
    EXPECT_EQ(sent_.tokens[i], i + 1);
  }
  EXPECT_EQ(payloads, before) << "the sender's memory was changed";
}

TEST_P(SocketSealer, TheRestOfADroppedPayloadIsZerosUnderARightSeal) {
  for (const int small_frames : {0, 3}) {
    sent_.tokens.clear();
    std::vector<Bytes> small;
    for (int i = 0; i < small_frames; ++i) {
      small.push_back(random_bytes(5000));
      stream_->push({.type = Frame::Type::put, .offset = 0, .bytes = 5000}, small.back().data(), 1);
    }
    // More than the kernel takes.
    Bytes large = random_bytes(3 << 20);
    stream_->push({.type = Frame::Type::put, .offset = 8192, .bytes = large.size()}, large.data(),
                  2);
    Bytes never = random_bytes(100);
    stream_->push({.type = Frame::Type::put, .offset = 0, .bytes = 100}, never.data(), 3);
    send();
    ASSERT_LT(sent_.tokens.size(), static_cast<std::size_t>(small_frames) + 1);
    stream_->drop_payloads();
    const Bytes original = large;
    // The sender may use its memory again.
    for (Bytes& bytes : small) bytes.assign(bytes.size(), std::byte{0xee});
    large.assign(large.size(), std::byte{0xee});
    never.assign(never.size(), std::byte{0xee});
    stream_->push({.type = Frame::Type::fault, .value = std::uint64_t{1} << 32}, nullptr, 4);
    const auto frames = read_all();
    ASSERT_EQ(frames.size(), static_cast<std::size_t>(small_frames) + 2);
    EXPECT_EQ(frames.back().type, Frame::Type::fault);
    std::size_t same = 0;
    while (same < original.size() && region_[8192 + same] == original[same]) ++same;
    EXPECT_GT(same, 0u);
    for (std::size_t i = same; i < original.size(); ++i)
      ASSERT_EQ(region_[8192 + i], std::byte{0}) << "byte " << i << " of the dropped payload";
  }
}

TEST_P(SocketSealer, HoldsNoMoreMemoryThanItsWindow) {
  const Bytes large = random_bytes(4 << 20);
  stream_->push({.type = Frame::Type::put, .offset = 0, .bytes = large.size()}, large.data(), 1);
  send();
  EXPECT_LT(stream_->memory_bytes(), Sealer::window_bytes + 16'384);
}

}  // namespace
}  // namespace unisono::test
