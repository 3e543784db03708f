// Streams on which nothing answers, by times that a test makes up.

#include "transport/socket/silence.h"

#include <gtest/gtest.h>

#include <vector>

namespace unisono::transport::socket {
namespace {

// Streams of a connection whose peer answers on some of them.
class Peer {
 public:
  explicit Peer(std::size_t streams)
      : silence_(streams), lanes_(streams, Answers{.waits = false, .last_ns = 0}) {
    look();
  }

  // Something is sent on the stream; it is answered at each look unless the stream is silent.
  void send(std::size_t stream) { lanes_[stream]->waits = true; }
  void answer(std::size_t stream) { *lanes_[stream] = {.waits = false, .last_ns = now_ns_}; }
  void close(std::size_t stream) { lanes_[stream].reset(); }
  void lose_link(std::size_t stream) { lanes_[stream]->link_is_down = true; }
  void pass(std::int64_t ns) { now_ns_ += ns; }
  void look() { silence_.look(now_ns_, lanes_); }
  // Time passes, in which the peer acknowledges all the time what is sent on `answered`.
  void run(std::int64_t ns, std::vector<std::size_t> answered) {
    for (const std::int64_t end = now_ns_ + ns; now_ns_ < end;) {
      pass(Silence::look_ns);
      for (const std::size_t stream : answered)
        *lanes_[stream] = {.waits = true, .last_ns = now_ns_};
      look();
    }
  }
  const Silence& silence() const { return silence_; }

 private:
  Silence silence_;
  std::int64_t now_ns_ = 3'600'000'000'000;
  std::vector<std::optional<Answers>> lanes_;
};

TEST(Silence, OfAStreamIsOverAtTheLimitWhileAnotherOneAnswers) {
  Peer peer(2);
  peer.send(0);
  peer.run(Silence::limit_ns, {1});
  EXPECT_FALSE(peer.silence().is_over(0));
  peer.run(Silence::look_ns, {1});
  EXPECT_TRUE(peer.silence().is_over(0));
  EXPECT_FALSE(peer.silence().is_over(1));
}

TEST(Silence, EndsWithAnAnswer) {
  Peer peer(2);
  peer.send(0);
  peer.run(Silence::limit_ns, {1});
  peer.answer(0);
  peer.send(0);
  peer.run(Silence::limit_ns, {1});
  EXPECT_FALSE(peer.silence().is_over(0));
}

// A peer that only reads slowly closes its window: nothing is on its way then.
TEST(Silence, IsNotThatNothingWaitsForAnAnswer) {
  Peer peer(2);
  peer.run(2 * Silence::limit_ns, {1});
  EXPECT_FALSE(peer.silence().is_over(0));
}

TEST(Silence, OfAllStreamsIsThePeersAndClosesNone) {
  Peer peer(3);
  for (std::size_t stream = 0; stream < 3; ++stream) peer.send(stream);
  peer.run(10 * Silence::limit_ns, {});
  for (std::size_t stream = 0; stream < 3; ++stream) {
    EXPECT_FALSE(peer.silence().is_over(stream));
    EXPECT_FALSE(peer.silence().must_ask(stream));
  }
}

TEST(Silence, OfTheLastStreamClosesNothing) {
  Peer peer(2);
  peer.send(0);
  peer.close(1);
  peer.run(10 * Silence::limit_ns, {});
  EXPECT_FALSE(peer.silence().is_over(0));
}

TEST(Silence, OfAStreamHasAnIdleOneAskedWhetherThePeerIsThere) {
  Peer peer(2);
  peer.send(0);
  peer.run(Silence::look_ns, {});
  EXPECT_FALSE(peer.silence().must_ask(1));
  peer.run(Silence::limit_ns, {});
  EXPECT_TRUE(peer.silence().must_ask(1));
  EXPECT_FALSE(peer.silence().is_over(0));
  peer.answer(1);
  peer.look();
  EXPECT_FALSE(peer.silence().must_ask(1));
  EXPECT_TRUE(peer.silence().is_over(0));
}

TEST(Silence, OnALinkThatIsDownIsOverSooner) {
  Peer peer(2);
  peer.send(0);
  peer.lose_link(0);
  peer.run(Silence::look_ns, {1});
  EXPECT_FALSE(peer.silence().is_over(0));
  peer.run(Silence::link_down_ns, {1});
  EXPECT_TRUE(peer.silence().is_over(0));
}

// The process may have been stopped, with the answers still in its kernel.
TEST(Silence, OfATimeInWhichTheProcessDidNotLookIsUnknown) {
  Peer peer(2);
  peer.send(0);
  peer.run(Silence::look_ns, {1});
  peer.pass(10 * Silence::limit_ns);
  peer.run(Silence::look_ns, {1});
  EXPECT_FALSE(peer.silence().is_over(0));
  peer.run(Silence::limit_ns, {1});
  EXPECT_TRUE(peer.silence().is_over(0));
}

}  // namespace
}  // namespace unisono::transport::socket
