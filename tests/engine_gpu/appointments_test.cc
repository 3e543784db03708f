// Hosts that agree on where copies go: no GPU is needed.
#include "engine/gpu/appointments.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace unisono::engine::gpu {
namespace {

using Way = Appointment::Way;

Appointment straight_to(sys::cuda::DeviceAddress at) { return {.way = Way::straight, .at = at}; }

class Appointments : public testing::Test {
 protected:
  // Zeroed, as the memory that two processes share is.
  std::vector<std::byte> memory_ = std::vector<std::byte>(sizeof(AppointmentBook) + 64);
  AppointmentBook& book_ = *reinterpret_cast<AppointmentBook*>(
      (reinterpret_cast<std::uintptr_t>(memory_.data()) + 63) / 64 * 64);
};

TEST_F(Appointments, ASenderWaitsForTheReceiverAndGoesWhereItSays) {
  EXPECT_EQ(book_.sender_comes(1, true).way, Way::undecided);
  EXPECT_EQ(book_.receiver_comes(1, straight_to(4711)).way, Way::straight);
  const Appointment decided = book_.sender_comes(1, true);
  EXPECT_EQ(decided.way, Way::straight);
  EXPECT_EQ(decided.at, 4711U);
  EXPECT_FALSE(decided.is_captured);
}

TEST_F(Appointments, ASenderThatWaitsNoLongerGoesThroughSlotsForBoth) {
  EXPECT_EQ(book_.sender_comes(1, false).way, Way::slots);
  EXPECT_EQ(book_.receiver_comes(1, straight_to(4711)).way, Way::slots);
  EXPECT_EQ(book_.receiver_comes(2, straight_to(4712)).way, Way::straight);
  EXPECT_EQ(book_.sender_comes(2, false).at, 4712U);
}

TEST_F(Appointments, AReceiverMayWantSlotsAndTellsThatItCaptures) {
  EXPECT_EQ(book_.receiver_comes(1, {.way = Way::slots}).way, Way::slots);
  EXPECT_EQ(book_.sender_comes(1, true).way, Way::slots);
  book_.receiver_comes(2, {.way = Way::straight, .at = 1, .is_captured = true});
  EXPECT_TRUE(book_.sender_comes(2, true).is_captured);
}

TEST_F(Appointments, NeitherEndIsFurtherAheadThanThereIsRoom) {
  for (std::uint64_t message = 1; message <= AppointmentBook::room; ++message)
    EXPECT_EQ(book_.receiver_comes(message, straight_to(message)).way, Way::straight);
  const std::uint64_t next = AppointmentBook::room + 1;
  EXPECT_EQ(book_.receiver_comes(next, straight_to(next)).way, Way::undecided);
  EXPECT_EQ(book_.sender_comes(1, true).at, 1U);
  EXPECT_EQ(book_.receiver_comes(next, straight_to(next)).way, Way::straight);
  for (std::uint64_t message = 2; message <= next; ++message)
    EXPECT_EQ(book_.sender_comes(message, false).at, message);
  for (std::uint64_t message = next + 1; message <= next + AppointmentBook::room; ++message)
    EXPECT_EQ(book_.sender_comes(message, false).way, Way::slots);
  EXPECT_EQ(book_.sender_comes(next + AppointmentBook::room + 1, false).way, Way::undecided);
}

// Both ends at once, at any pace: they never disagree, on the place either.
TEST_F(Appointments, BothEndsAgreeOnEveryMessage) {
  constexpr std::uint64_t messages = 100'000;
  std::vector<Appointment> sent(messages + 1);
  std::vector<Appointment> received(messages + 1);
  const auto run = [&](std::uint64_t seed, std::vector<Appointment>& outcomes, auto comes) {
    std::mt19937_64 random(seed);
    for (std::uint64_t message = 1; message <= messages; ++message)
      while (outcomes[message].way == Way::undecided) {
        outcomes[message] = comes(message, random);
        if (random() % 50 == 0) std::this_thread::yield();
      }
  };
  std::thread sender([&] {
    run(1, sent, [&](std::uint64_t message, auto& random) {
      return book_.sender_comes(message, random() % 4 != 0);
    });
  });
  run(2, received, [&](std::uint64_t message, auto& random) {
    const bool is_wanted = message % 7 != 0;
    return random() % 4 == 0
               ? Appointment{}
               : book_.receiver_comes(message, is_wanted ? straight_to(message * 256)
                                                         : Appointment{.way = Way::slots});
  });
  sender.join();
  std::uint64_t straight = 0;
  for (std::uint64_t message = 1; message <= messages; ++message) {
    ASSERT_EQ(sent[message].way, received[message].way) << message;
    if (sent[message].way != Way::straight) continue;
    ASSERT_EQ(sent[message].at, message * 256);
    ++straight;
  }
  EXPECT_GT(straight, 0U);
}

}  // namespace
}  // namespace unisono::engine::gpu
