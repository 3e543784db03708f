// Hosts that agree on where copies go: no GPU is needed.
#include "engine/gpu/copy_rendezvous.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace unisono::engine::gpu {
namespace {

using Way = CopyRendezvous::Way;

CopyRendezvous zero_copy_to(sys::cuda::DeviceAddress at) {
  return {.way = Way::zero_copy, .at = at};
}

class CopyRendezvousTest : public testing::Test {
 protected:
  // Zeroed, as the memory that two processes share is.
  std::vector<std::byte> memory_ = std::vector<std::byte>(sizeof(CopyRendezvousBook) + 64);
  CopyRendezvousBook& book_ = *reinterpret_cast<CopyRendezvousBook*>(
      (reinterpret_cast<std::uintptr_t>(memory_.data()) + 63) / 64 * 64);
};

TEST_F(CopyRendezvousTest, ASenderWaitsForTheReceiverAndGoesWhereItSays) {
  EXPECT_EQ(book_.sender_arrives(1, true).way, Way::undecided);
  EXPECT_EQ(book_.receiver_arrives(1, zero_copy_to(4711)).way, Way::zero_copy);
  const CopyRendezvous decided = book_.sender_arrives(1, true);
  EXPECT_EQ(decided.way, Way::zero_copy);
  EXPECT_EQ(decided.at, 4711U);
  EXPECT_FALSE(decided.is_captured);
}

TEST_F(CopyRendezvousTest, ASenderThatWaitsNoLongerGoesThroughSlotsForBoth) {
  EXPECT_EQ(book_.sender_arrives(1, false).way, Way::slots);
  EXPECT_EQ(book_.receiver_arrives(1, zero_copy_to(4711)).way, Way::slots);
  EXPECT_EQ(book_.receiver_arrives(2, zero_copy_to(4712)).way, Way::zero_copy);
  EXPECT_EQ(book_.sender_arrives(2, false).at, 4712U);
}

TEST_F(CopyRendezvousTest, AReceiverMayWantSlotsAndTellsThatItCaptures) {
  EXPECT_EQ(book_.receiver_arrives(1, {.way = Way::slots}).way, Way::slots);
  EXPECT_EQ(book_.sender_arrives(1, true).way, Way::slots);
  book_.receiver_arrives(2, {.way = Way::zero_copy, .at = 1, .is_captured = true});
  EXPECT_TRUE(book_.sender_arrives(2, true).is_captured);
}

TEST_F(CopyRendezvousTest, NeitherEndIsFurtherAheadThanThereIsRoom) {
  for (std::uint64_t message = 1; message <= CopyRendezvousBook::room; ++message)
    EXPECT_EQ(book_.receiver_arrives(message, zero_copy_to(message)).way, Way::zero_copy);
  const std::uint64_t next = CopyRendezvousBook::room + 1;
  EXPECT_EQ(book_.receiver_arrives(next, zero_copy_to(next)).way, Way::undecided);
  EXPECT_EQ(book_.sender_arrives(1, true).at, 1U);
  EXPECT_EQ(book_.receiver_arrives(next, zero_copy_to(next)).way, Way::zero_copy);
  for (std::uint64_t message = 2; message <= next; ++message)
    EXPECT_EQ(book_.sender_arrives(message, false).at, message);
  for (std::uint64_t message = next + 1; message <= next + CopyRendezvousBook::room; ++message)
    EXPECT_EQ(book_.sender_arrives(message, false).way, Way::slots);
  EXPECT_EQ(book_.sender_arrives(next + CopyRendezvousBook::room + 1, false).way, Way::undecided);
}

// Both ends at once, at any pace: they never disagree, on the place either.
TEST_F(CopyRendezvousTest, BothEndsAgreeOnEveryMessage) {
  constexpr std::uint64_t messages = 100'000;
  std::vector<CopyRendezvous> sent(messages + 1);
  std::vector<CopyRendezvous> received(messages + 1);
  const auto run = [&](std::uint64_t seed, std::vector<CopyRendezvous>& outcomes, auto comes) {
    std::mt19937_64 random(seed);
    for (std::uint64_t message = 1; message <= messages; ++message)
      while (outcomes[message].way == Way::undecided) {
        outcomes[message] = comes(message, random);
        if (random() % 50 == 0) std::this_thread::yield();
      }
  };
  std::thread sender([&] {
    run(1, sent, [&](std::uint64_t message, auto& random) {
      return book_.sender_arrives(message, random() % 4 != 0);
    });
  });
  run(2, received, [&](std::uint64_t message, auto& random) {
    const bool is_wanted = message % 7 != 0;
    return random() % 4 == 0
               ? CopyRendezvous{}
               : book_.receiver_arrives(message, is_wanted ? zero_copy_to(message * 256)
                                                           : CopyRendezvous{.way = Way::slots});
  });
  sender.join();
  std::uint64_t zero_copies = 0;
  for (std::uint64_t message = 1; message <= messages; ++message) {
    ASSERT_EQ(sent[message].way, received[message].way) << message;
    if (sent[message].way != Way::zero_copy) continue;
    ASSERT_EQ(sent[message].at, message * 256);
    ++zero_copies;
  }
  EXPECT_GT(zero_copies, 0U);
}

}  // namespace
}  // namespace unisono::engine::gpu
