// Somebody between two ranks who forwards what they send: changed, repeated, left out, in another
// order, cut, or made up.

#include <poll.h>

#include <algorithm>
#include <deque>

#include "transport/raw_peer.h"
#include "transport/socket/inbox.h"
#include "transport/socket/wire_policy.h"

namespace unisono::test {
namespace {

using namespace transport::socket;
using sys::Protection;
using Bytes = std::vector<std::byte>;

constexpr Geometry geometry{.region_bytes = std::size_t{1} << 20, .signals = 2};
constexpr std::size_t tag_bytes = sys::Seal::tag_bytes;

TransportOptions options(const std::string& job, Protection protection) {
  TransportOptions with = Job::options(job);
  with.protection = protection;
  with.protects_loopback = true;
  return with;
}

TransportOptions of_one_stream(const std::string& job, Protection protection) {
  TransportOptions with = options(job, protection);
  with.socket_streams = 1;
  return with;
}

using Frames = std::vector<Bytes>;
// What is forwarded in place of the n-th frame of the connecting rank (from 0).
using Tamper = std::function<Frames(std::size_t number, Bytes frame)>;

// Stands between the connecting rank 0 and rank 1; reads heads, which are in clear.
class Middle {
 public:
  Middle(std::string victim_address, Protection protection)
      : victim_address_(std::move(victim_address)), sealed_(protection != Protection::none) {
    auto listener = sys::open_listener({.host = "127.0.0.1", .port = 0});
    EXPECT_TRUE(listener.ok());
    listener_ = sys::Socket(*listener);
  }
  std::string address() const { return sys::local_address(listener_.get())->text(); }

  // Moves what there is.
  void pump() {
    if (!client_) {
      auto accepted = sys::accept_one(listener_);
      if (!accepted.ok() || !*accepted) return;
      client_ = std::move(*accepted);
      victim_ = sys::Socket(*sys::begin_connect(*sys::Address::parse(victim_address_)));
      EXPECT_TRUE(eventually([&] { return *sys::is_connected(victim_); }));
    }
    read(client_, from_client_);
    read(victim_, from_victim_);
    forward(from_victim_, from_victim_.size(), client_);
    const std::size_t handshake = greeting_bytes + hello_bytes;
    if (handshake_done_ < handshake)
      handshake_done_ += forward(
          from_client_, std::min(from_client_.size(), handshake - handshake_done_), victim_);
    if (handshake_done_ < handshake) return;
    while (auto frame = take_frame())
      for (const Bytes& out : tamper_(frames_++, std::move(*frame))) {
        seen_.insert(seen_.end(), out.begin(), out.end());
        write(victim_, out);
      }
    if (cuts_ && frames_ >= *cuts_) {
      sys::end_sending(victim_);
      sys::end_sending(client_);
    }
  }
  void tamper(Tamper how) { tamper_ = std::move(how); }
  void cut_after(std::size_t frames) { cuts_ = frames; }
  const Bytes& seen() const { return seen_; }
  std::size_t frames() const { return frames_; }
  // To rank 1, on the connection that rank 0 has made.
  void inject(const Bytes& bytes) { write(victim_, bytes); }

 private:
  static void read(const sys::Socket& from, Bytes& into) {
    Bytes some(1 << 16);
    const iovec part{.iov_base = some.data(), .iov_len = some.size()};
    const auto got = sys::receive_some(from, {&part, 1});
    into.insert(into.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(got.bytes));
  }
  static void write(const sys::Socket& to, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const iovec part{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
      const auto sent = sys::send_some(to, {&part, 1});
      if (sent.error != 0) return;
      bytes = bytes.subspan(sent.bytes);
    }
  }
  static std::size_t forward(Bytes& from, std::size_t bytes, const sys::Socket& to) {
    write(to, std::span(from).first(bytes));
    from.erase(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(bytes));
    return bytes;
  }
  std::optional<Bytes> take_frame() {
    if (from_client_.size() < frame_bytes) return std::nullopt;
    const Frame frame = decode(std::span<const std::byte, frame_bytes>(from_client_.data(), 40));
    std::size_t bytes = frame_bytes + frame.bytes;
    if (sealed_) bytes += frame.bytes > 0 ? 2 * tag_bytes : tag_bytes;
    if (from_client_.size() < bytes) return std::nullopt;
    const auto end = from_client_.begin() + static_cast<std::ptrdiff_t>(bytes);
    Bytes out(from_client_.begin(), end);
    from_client_.erase(from_client_.begin(), end);
    return out;
  }

  std::string victim_address_;
  bool sealed_;
  sys::Socket listener_, client_, victim_;
  Bytes from_client_, from_victim_, seen_;
  std::size_t handshake_done_ = 0;
  std::size_t frames_ = 0;
  std::optional<std::size_t> cuts_;
  Tamper tamper_ = [](std::size_t, Bytes frame) -> Frames { return Frames{std::move(frame)}; };
};

// Rank 0 sends through the middle to rank 1.
struct Line {
  explicit Line(Protection protection) {
    const std::string name = fresh_job();
    for (auto& transport : transports)
      transport = std::move(*make_transport(of_one_stream(name, protection)));
    middle.emplace(transports[1]->address(), protection);
    a = must(connect(0, middle->address()));
    b = must(connect(1, transports[0]->address()));
    EXPECT_TRUE(eventually([&] {
      move();
      const bool ready = is_ready(*a);
      return is_ready(*b) && ready;
    }));
  }
  Result<std::unique_ptr<Connection>> connect(int self, const std::string& address) {
    return transports[static_cast<std::size_t>(self)]->connect({.key = {},
                                                                .ranks = 2,
                                                                .self = self,
                                                                .peer = 1 - self,
                                                                .peer_address = address,
                                                                .geometry = geometry});
  }
  void move() {
    for (auto& transport : transports) EXPECT_TRUE(transport->progress().ok());
    middle->pump();
  }
  // The n-th message (from 1): random bytes at a place of its own, and the signal n.
  Bytes send(std::uint64_t number, std::size_t bytes) {
    Bytes content = random_bytes(random, bytes);
    sent.push_back(content);
    EXPECT_TRUE(put(*a, sent.back().data(), bytes, (number - 1) * message_room, {0, number}));
    return content;
  }
  bool arrives(std::uint64_t number) {
    return eventually([&] {
      move();
      EXPECT_TRUE(progress_all({a.get(), b.get()}).ok());
      return b->signals()[0].load() >= number;
    });
  }
  // The victim's error, and nothing of what was announced before has changed.
  Error refusal() {
    return until_error([&] {
      move();
      if (a) (void)a->progress();
      return b->check_peer();
    });
  }
  static constexpr std::size_t message_room = std::size_t{1} << 17;
  bool holds(std::uint64_t number, const Bytes& content) const {
    return equal_bytes(b->region() + (number - 1) * message_room, content.data(), content.size());
  }

  std::mt19937_64 random{std::random_device{}()};
  std::array<std::unique_ptr<Transport>, 2> transports;
  std::optional<Middle> middle;
  std::unique_ptr<Connection> a, b;
  std::deque<Bytes> sent;  // stays until the puts are complete
};

std::string protection_name(const testing::TestParamInfo<Protection>& which) {
  return std::string(sys::name(which.param));
}

class SocketSeal : public testing::TestWithParam<Protection> {
 protected:
  // The first message arrives; what the middle does of the second is refused, and never seen.
  void refuses(const Tamper& how, std::size_t bytes = 5000) {
    Line line(GetParam());
    const Bytes first = line.send(1, 70'000);
    ASSERT_TRUE(line.arrives(1));
    ASSERT_EQ(line.middle->frames(), 1u);
    line.middle->tamper(how);
    line.send(2, bytes);
    line.send(3, bytes);
    line.send(4, bytes);
    const Error told = line.refusal();
    EXPECT_EQ(told.kind, ErrorKind::peer);
    EXPECT_EQ(told.peer, 0);
    EXPECT_EQ(told.reason, FailureReason::link);
    EXPECT_LT(line.b->signals()[0].load(), 4u) << told.message;
    EXPECT_EQ(line.b->signals()[1].load(), 0u);
    EXPECT_TRUE(line.holds(1, first)) << told.message;
    // It stays so.
    EXPECT_EQ(line.refusal().message, told.message);
    // The other end is not at fault, and hears why.
    const Error heard = until_error([&] {
      line.move();
      (void)line.b->progress();
      return line.a->check_peer();
    });
    EXPECT_EQ(heard.peer, 1);
    EXPECT_EQ(heard.reason, FailureReason::link);
    EXPECT_EQ(heard.message,
              "rank 1 closed the connection because what rank 0 had sent was changed, repeated or "
              "dropped on the network");
  }
};
INSTANTIATE_TEST_SUITE_P(All, SocketSeal,
                         testing::Values(Protection::authenticate, Protection::encrypt),
                         protection_name);

TEST_P(SocketSeal, WhatNobodyTouchesArrives) {
  Line line(GetParam());
  for (std::uint64_t number = 1; number <= 8; ++number) {
    const Bytes content = line.send(number, number == 3 ? 130'000 : 1 + number * 999);
    ASSERT_TRUE(line.arrives(number));
    EXPECT_TRUE(line.holds(number, content));
    EXPECT_EQ(line.sent.back(), content) << "the sender's memory was changed";
    const Bytes& seen = line.middle->seen();
    const bool is_seen =
        std::search(seen.begin(), seen.end(), content.begin(), content.end()) != seen.end();
    EXPECT_EQ(is_seen, GetParam() != Protection::encrypt) << "seen on the way";
  }
  // The other direction, and an orderly end.
  ASSERT_TRUE(put(*line.b, "back", 4, 9, {1, 5}));
  ASSERT_TRUE(eventually([&] {
    line.move();
    EXPECT_TRUE(progress_all({line.a.get(), line.b.get()}).ok());
    return line.a->signals()[1].load() == 5;
  }));
  line.a.reset();
  EXPECT_NE(line.refusal().message.find("left"), std::string::npos);
}

TEST_P(SocketSeal, AnyChangedByteIsRefused) {
  std::mt19937_64 random(std::random_device{}());
  constexpr std::size_t payload = 5000;
  // One of each field of the head, of its tag, of the payload, of its tag.
  std::vector<std::size_t> places{0, 4, 8, 16, 24, 32};
  places.push_back(frame_bytes + random_below(random, tag_bytes));
  places.push_back(frame_bytes + tag_bytes);
  places.push_back(frame_bytes + tag_bytes + random_below(random, payload));
  places.push_back(frame_bytes + tag_bytes + payload - 1);
  places.push_back(frame_bytes + tag_bytes + payload + random_below(random, tag_bytes));
  for (const std::size_t place : places) {
    SCOPED_TRACE(place);
    refuses(
        [&](std::size_t number, Bytes frame) -> Frames {
          if (number == 1) frame[place] ^= std::byte{1} << random_below(random, 8);
          return Frames{std::move(frame)};
        },
        payload);
  }
}

// A changed head must not even let bytes land where it says: what lies there was announced.
TEST_P(SocketSeal, AChangedOffsetMovesNoByte) {
  refuses([](std::size_t number, Bytes frame) -> Frames {
    if (number == 1) {
      Frame head = decode(std::span<const std::byte, frame_bytes>(frame.data(), frame_bytes));
      head.offset = 0;
      std::ranges::copy(encode(head), frame.begin());
    }
    return Frames{std::move(frame)};
  });
}

TEST_P(SocketSeal, ARepeatedFrameIsRefused) {
  refuses([](std::size_t number, Bytes frame) -> Frames {
    return number == 1 ? Frames{frame, frame} : Frames{std::move(frame)};
  });
}

TEST_P(SocketSeal, AnEarlierFrameAgainIsRefused) {
  auto earlier = std::make_shared<Bytes>();
  refuses([earlier](std::size_t number, Bytes frame) -> Frames {
    if (number == 1) *earlier = frame;
    return number == 2 ? Frames{*earlier, std::move(frame)} : Frames{std::move(frame)};
  });
}

TEST_P(SocketSeal, FramesInAnotherOrderAreRefused) {
  auto held = std::make_shared<Bytes>();
  refuses([held](std::size_t number, Bytes frame) -> Frames {
    if (number == 1) {
      *held = std::move(frame);
      return {};
    }
    if (number == 2) return {std::move(frame), *held};
    return {std::move(frame)};
  });
}

TEST_P(SocketSeal, AFrameLeftOutIsMissed) {
  refuses([](std::size_t number, Bytes frame) -> Frames {
    if (number == 1) return {};
    return {std::move(frame)};
  });
}

TEST_P(SocketSeal, APayloadOfAnotherFrameIsRefused) {
  auto held = std::make_shared<Bytes>();
  refuses([held](std::size_t number, Bytes frame) -> Frames {
    const auto head_bytes = static_cast<std::ptrdiff_t>(frame_bytes + tag_bytes);
    if (number == 1) *held = Bytes(frame.begin() + head_bytes, frame.end());
    if (number == 2) std::ranges::copy(*held, frame.begin() + head_bytes);
    return {std::move(frame)};
  });
}

TEST_P(SocketSeal, FramesWithoutASealAreRefused) {
  for (const Frame::Type type : {Frame::Type::signal, Frame::Type::fault, Frame::Type::bye}) {
    Line line(GetParam());
    const bool signals = type == Frame::Type::signal;
    const bool blames = type == Frame::Type::fault;
    const auto made_up =
        encode({.type = type,
                .signal = signals ? 0 : Frame::no_signal,
                .value = signals ? 9 : (blames ? (std::uint64_t{1} << 32 | 1) : 0)});
    line.middle->inject(Bytes(made_up.begin(), made_up.end()));
    line.middle->inject(Bytes(tag_bytes));
    const Error told = line.refusal();
    EXPECT_EQ(told.peer, 0);
    EXPECT_FALSE(told.aborted) << "a fault that nobody told was believed";
    EXPECT_EQ(told.message.find("left the communicator"), std::string::npos) << told.message;
    EXPECT_EQ(line.b->signals()[0].load(), 0u);
  }
}

TEST_P(SocketSeal, ACutBetweenFramesIsABrokenStreamAndNoOrderlyEnd) {
  Line line(GetParam());
  const Bytes first = line.send(1, 3000);
  ASSERT_TRUE(line.arrives(1));
  line.middle->cut_after(1);
  const Error told = line.refusal();
  EXPECT_NE(told.message.find("failed"), std::string::npos) << told.message;
  EXPECT_TRUE(line.holds(1, first));
}

// The control: what the tests above do is seen where nothing is sealed.
TEST(SocketSealControl, WithoutASealAChangeGoesThrough) {
  Line line(Protection::none);
  line.middle->tamper([](std::size_t, Bytes frame) -> Frames {
    frame[frame_bytes + 10] ^= std::byte{1};
    return Frames{std::move(frame)};
  });
  const Bytes content = line.send(1, 3000);
  ASSERT_TRUE(line.arrives(1));
  EXPECT_FALSE(line.holds(1, content));
}

TEST(SocketSealPolicy, BothEndsMustProtectTheSame) {
  for (const auto& [mine, theirs] : {std::pair(Protection::authenticate, Protection::none),
                                     std::pair(Protection::none, Protection::encrypt),
                                     std::pair(Protection::encrypt, Protection::authenticate)}) {
    const std::string name = fresh_job();
    std::array transports{*make_transport(options(name, mine)),
                          *make_transport(options(name, theirs))};
    std::array<std::unique_ptr<Connection>, 2> ends;
    for (int rank = 0; rank < 2; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      ends[at] = must(transports[at]->connect({.key = {},
                                               .ranks = 2,
                                               .self = rank,
                                               .peer = 1 - rank,
                                               .peer_address = transports[1 - at]->address(),
                                               .geometry = geometry}));
    }
    for (std::size_t at = 0; at < 2; ++at) {
      const Error told = until_error([&]() -> Status {
        for (auto& transport : transports) EXPECT_TRUE(transport->progress().ok());
        auto ready = ends[at]->ready();
        return ready.ok() ? Status{} : Status(ready.take_error());
      });
      EXPECT_EQ(told.kind, ErrorKind::misuse);
      for (const std::string_view word :
           {std::string_view("UNISONO_WIRE"), sys::name(mine), sys::name(theirs)})
        EXPECT_NE(told.message.find(word), std::string::npos) << told.message;
    }
  }
}

TEST(SocketSealPolicy, TheLoopbackIsLeftAsItIs) {
  auto listener = sys::open_listener({.host = "127.0.0.1", .port = 0});
  ASSERT_TRUE(listener.ok());
  const sys::Socket listening(*listener);
  const sys::Socket connecting(*sys::begin_connect(*sys::local_address(*listener)));
  ASSERT_TRUE(eventually([&] { return *sys::is_connected(connecting); }));
  EXPECT_EQ(*(WirePolicy{Protection::encrypt, false}.of(connecting)), Protection::none);
  EXPECT_EQ(*(WirePolicy{Protection::encrypt, true}.of(connecting)), Protection::encrypt);
  EXPECT_EQ(*(WirePolicy{Protection::none, true}.of(connecting)), Protection::none);
  using sys::Address;
  EXPECT_TRUE(sys::stays_on_host(Address{"127.0.0.1", 1}, Address{"127.3.2.1", 2}));
  EXPECT_TRUE(sys::stays_on_host(Address{"::1", 1}, Address{"::1", 2}));
  EXPECT_FALSE(sys::stays_on_host(Address{"127.0.0.1", 1}, Address{"10.0.0.1", 2}));
  EXPECT_FALSE(sys::stays_on_host(Address{"10.0.0.1", 1}, Address{"127.0.0.1", 2}));
}

}  // namespace
}  // namespace unisono::test
