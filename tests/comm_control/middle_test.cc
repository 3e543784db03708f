// Somebody sits between two ranks and changes, repeats, exchanges, leaves out or cuts what they
// tell each other.

#include <gtest/gtest.h>

#include <functional>

#include "comm/control/handshake.h"
#include "comm/control/node.h"
#include "support/open_gate.h"
#include "support/quiet.h"
#include "sys/simulated_world.h"

namespace unisono::comm {
namespace {

using Bytes = std::vector<std::byte>;
using sys::Protection;

constexpr std::int64_t one_second_ns = 1'000'000'000;
constexpr std::int64_t forever_ns = 1000 * one_second_ns;
constexpr int messages = 5;
constexpr std::size_t message_bytes = 8;
constexpr std::size_t greeting_bytes = 16;
const sys::Address receiver_address{"receiver", 1};
const sys::Address sender_address{"sender", 2};
const sys::Address middle_address{"middle", 3};

Bytes message(int number) { return Bytes(message_bytes, static_cast<std::byte>(number + 1)); }
MessageKey key_of(int number) { return {7, 0, static_cast<std::uint64_t>(number), 0}; }

// What the middle makes of the messages' frames; whether it cuts the stream then.
struct Tampering {
  const char* name;
  std::function<void(std::vector<Bytes>& frames)> change;
  bool cuts = false;
  int arrive = 0;  // messages before the first that is not right
};

// Rank 1 (process 1) sends messages to rank 0 (process 0) through the middle (process 2).
class Scene {
 public:
  Scene(Protection protection, const Tampering& tampering)
      : protection_(protection), tampering_(tampering) {
    for (const char* host : {"receiver", "sender", "middle"}) simulation_.add_process(host);
    for (int rank = 0; rank < 2; ++rank) {
      nodes_.push_back(std::make_unique<ControlNode>(simulation_.world(rank), rank, 2,
                                                     WireProtection{protection, true}));
      nodes_.back()->set_job(7, enrolment_key("the job's"));
      auto listener = simulation_.world(rank).listen(rank == 0 ? receiver_address : sender_address);
      EXPECT_TRUE(nodes_.back()->start(std::move(*listener), std::nullopt).ok());
    }
    nodes_[1]->set_address(0, middle_address.text());
  }

  void run() {
    simulation_.start(2, relay());
    simulation_.start(1, send());
    simulation_.start(0, receive());
    EXPECT_TRUE(simulation_.run(forever_ns));
  }

  // Rank 0 links to rank 1 directly, too, and the middle cuts its link as soon as it has begun.
  void link_directly() {
    nodes_[0]->set_address(1, sender_address.text());
    is_cut_at_once_ = true;
  }
  // Rank 1 leaves in order once it has sent everything.
  void leave() { leaves_ = true; }

  int arrived = 0;
  std::optional<Error> error;
  std::int64_t ended_ns = 0;

 private:
  sys::Task<void> send() {
    const GroupId group{7, 0};
    Status sent = co_await nodes_[1]->link(0, group, forever_ns);
    for (int number = 0; number < messages && sent.ok(); ++number) {
      const Bytes payload = message(number);
      sent = co_await nodes_[1]->send(0, key_of(number), payload, forever_ns);
    }
    if (leaves_) nodes_[1].reset();
  }

  sys::Task<void> receive() {
    sys::World& world = simulation_.world(0);
    for (int number = 0; number < messages; ++number) {
      const std::int64_t deadline_ns = world.now_ns() + 20 * one_second_ns;
      Result<Bytes> got = co_await nodes_[0]->receive(1, key_of(number), deadline_ns);
      ended_ns = world.now_ns();
      if (!got.ok()) {
        error = got.error();
        co_return;
      }
      EXPECT_EQ(*got, message(number)) << number;
      ++arrived;
    }
    sys::Wait pause(world.scheduler(), world.now_ns() + 3 * one_second_ns);
    co_await pause;
    Status after = nodes_[0]->check(1, {7, 0});
    if (!after.ok()) error = after.error();
  }

  sys::Task<void> pass_on(sys::Stream& from, sys::Stream& to) {
    Bytes buffer(65536);
    for (;;) {
      Result<std::size_t> got = co_await from.read_some(buffer, forever_ns);
      if (!got.ok() || *got == 0) co_return;
      const auto bytes = std::span(buffer).first(*got);
      Status sent = co_await sys::write_all(to, bytes, forever_ns);
      if (!sent.ok()) co_return;
    }
  }

  std::size_t frame_bytes(std::size_t payload) const {
    const std::size_t tag = protection_ == Protection::none ? 0 : sys::Seal::tag_bytes;
    return frame_header_bytes + tag + payload + tag;
  }

  sys::Task<void> relay() {
    sys::World& world = simulation_.world(2);
    Result<std::unique_ptr<sys::Listener>> listener = world.listen(middle_address);
    Result<sys::Admitted> client = co_await (*listener)->admit(test::open_gate, forever_ns);
    Result<std::unique_ptr<sys::Stream>> server =
        co_await world.connect(receiver_address, forever_ns);
    tasks_.spawn(pass_on(**server, *client->stream));
    Status status;
    for (const std::size_t bytes : {answer_bytes, frame_bytes(greeting_bytes)}) {
      Bytes start(bytes);
      status = co_await sys::read_exactly(*client->stream, start, forever_ns);
      if (status.ok()) status = co_await sys::write_all(**server, start, forever_ns);
    }
    if (is_cut_at_once_) {
      sys::Wait pause(world.scheduler(), world.now_ns() + one_second_ns);
      co_await pause;
      tasks_.cancel_all();
      co_return;
    }
    std::vector<Bytes> frames;
    for (int number = 0; number < messages && status.ok(); ++number) {
      frames.emplace_back(frame_bytes(message_bytes));
      status = co_await sys::read_exactly(*client->stream, frames.back(), forever_ns);
    }
    if (status.ok()) tampering_.change(frames);
    for (const Bytes& frame : frames)
      if (status.ok()) status = co_await sys::write_all(**server, frame, forever_ns);
    if (!tampering_.cuts && status.ok()) co_await pass_on(*client->stream, **server);
    tasks_.cancel_all();
  }

  const Protection protection_;
  const Tampering tampering_;
  bool leaves_ = false;
  bool is_cut_at_once_ = false;
  sys::Simulation simulation_{{}};
  std::vector<std::unique_ptr<ControlNode>> nodes_;
  sys::TaskScope tasks_;
};

class Middle : public testing::TestWithParam<Tampering> {};

TEST_P(Middle, IsFoundOut) {
  for (const Protection protection : {Protection::authenticate, Protection::encrypt}) {
    Scene scene(protection, GetParam());
    scene.run();
    EXPECT_EQ(scene.arrived, GetParam().arrive);
    ASSERT_TRUE(scene.error.has_value());
    EXPECT_EQ(scene.error->peer, 1);
    EXPECT_EQ(scene.error->kind, ErrorKind::peer);
    EXPECT_FALSE(scene.error->timed_out) << scene.error->message;
    EXPECT_LT(scene.ended_ns, 10 * one_second_ns);
  }
}

void flip(Bytes& frame, std::size_t at) { frame[at % frame.size()] ^= std::byte{4}; }

INSTANTIATE_TEST_SUITE_P(
    Ways, Middle,
    testing::Values(
        Tampering{"changes_a_header", [](auto& frames) { flip(frames[2], 10); }, false, 2},
        Tampering{"changes_a_length", [](auto& frames) { flip(frames[2], 29); }, false, 2},
        Tampering{"changes_a_payload",
                  [](auto& frames) { flip(frames[2], frame_header_bytes + 16 + 3); }, false, 2},
        Tampering{"changes_a_tag", [](auto& frames) { flip(frames[2], frames[2].size() - 1); },
                  false, 2},
        Tampering{"repeats", [](auto& frames) { frames.insert(frames.begin() + 3, frames[2]); },
                  false, 3},
        Tampering{"exchanges", [](auto& frames) { std::swap(frames[1], frames[2]); }, false, 1},
        Tampering{"leaves_out", [](auto& frames) { frames.erase(frames.begin() + 3); }, false, 3},
        Tampering{"inserts",
                  [](auto& frames) {
                    frames.insert(frames.begin(),
                                  encode_frame(FrameKind::message, key_of(0), message(99)));
                  },
                  false, 0},
        Tampering{"says_bye",
                  [](auto& frames) {
                    frames.insert(frames.begin() + 4, encode_frame(FrameKind::bye, {}, {}));
                  },
                  false, 4},
        Tampering{"cuts_between_frames", [](auto& frames) { frames.resize(3); }, true, 3},
        Tampering{"cuts_a_frame",
                  [](auto& frames) {
                    frames.resize(4);
                    frames[3].resize(20);
                  },
                  true, 3}),
    [](const auto& test) { return test.param.name; });

TEST(Middle, ThatOnlyPassesOnIsNotNoticed) {
  for (const Protection protection :
       {Protection::none, Protection::authenticate, Protection::encrypt}) {
    Scene scene(protection, {"nothing", [](auto&) {}, false, messages});
    scene.run();
    EXPECT_EQ(scene.arrived, messages);
    EXPECT_FALSE(scene.error.has_value());
  }
}

TEST(Middle, ReadsNothingThatIsEncrypted) {
  for (const Protection protection : {Protection::authenticate, Protection::encrypt}) {
    int readable = 0;
    Scene scene(protection, {"reads",
                             [&](auto& frames) {
                               for (int number = 0; number < messages; ++number) {
                                 const Bytes& frame = frames[static_cast<std::size_t>(number)];
                                 const Bytes text = message(number);
                                 readable += std::search(frame.begin(), frame.end(), text.begin(),
                                                         text.end()) != frame.end();
                               }
                             },
                             false, messages});
    scene.run();
    EXPECT_EQ(readable, protection == Protection::encrypt ? 0 : messages);
  }
}

// Ends of one link while another one lives: meant only if the peer has said bye.
TEST(Middle, ThatCutsOneOfTwoLinksIsFoundOut) {
  Scene scene(Protection::authenticate, {"cuts", [](auto&) {}, true, messages});
  scene.link_directly();
  scene.run();
  EXPECT_EQ(scene.arrived, messages);
  ASSERT_TRUE(scene.error.has_value());
  EXPECT_EQ(scene.error->peer, 1);
  EXPECT_FALSE(scene.error->timed_out);
}

TEST(Middle, APeerThatLeavesSaysSo) {
  Scene scene(Protection::authenticate, {"nothing", [](auto&) {}, false, messages});
  scene.leave();
  scene.run();
  EXPECT_EQ(scene.arrived, messages);
  ASSERT_TRUE(scene.error.has_value());
  EXPECT_NE(scene.error->message.find("it has left the job"), std::string::npos)
      << scene.error->message;
}

}  // namespace
}  // namespace unisono::comm
