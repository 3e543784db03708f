// Records between two ranks, over shared memory: no GPU is needed.
#include "transport/nvlink/mail.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/str.h"
#include "transport/shm/transport.h"

namespace unisono::transport::nvlink {
namespace {

constexpr std::uint64_t many = 1000;  // more than there are slots

class MailTest : public testing::Test {
 protected:
  void SetUp() override {
    const Key key = *fresh_key();
    for (int rank = 0; rank < 2; ++rank) {
      auto made = shm::make_transport({.key = key, .interface = {}});
      ASSERT_TRUE(made.ok()) << made.error().describe();
      transports_.push_back(std::move(made).value());
    }
  }
  std::unique_ptr<Mail> make(std::size_t rank) { return std::make_unique<Mail>(connect(rank)); }
  std::unique_ptr<Connection> connect(std::size_t rank) {
    auto connection = transports_[rank]->connect({.key = {1, 0, 7},
                                                  .ranks = 2,
                                                  .self = static_cast<int>(rank),
                                                  .peer = static_cast<int>(1 - rank),
                                                  .peer_address = transports_[1 - rank]->address(),
                                                  .geometry = Mail::geometry()});
    EXPECT_TRUE(connection.ok());
    return std::move(connection).value();
  }
  std::vector<std::unique_ptr<Transport>> transports_;
};

TEST_F(MailTest, RecordsArriveInOrderBothWaysThroughFewSlots) {
  std::array mails{make(0), make(1)};
  for (std::uint64_t number = 0; number < many; ++number)
    for (std::uint64_t rank = 0; rank < 2; ++rank)
      mails[rank]->send(
          {.kind = Record::Kind::answer, .region = number, .address = number * 7 + rank});
  std::array<std::uint64_t, 2> got{};
  for (int round = 0; round < 10'000 && (got[0] < many || got[1] < many); ++round)
    for (std::uint64_t rank = 0; rank < 2; ++rank) {
      for (const auto& transport : transports_) ASSERT_TRUE(transport->progress().ok());
      mails[rank]->progress();
      // One takes all at once, the other slowly.
      for (int i = 0; rank == 0 || i < 3; ++i) {
        const auto record = mails[rank]->take();
        if (!record) break;
        ASSERT_EQ(record->kind, Record::Kind::answer);
        ASSERT_EQ(record->region, got[rank]);
        ASSERT_EQ(record->address, got[rank] * 7 + (1 - rank));
        ++got[rank];
      }
    }
  EXPECT_EQ(got[0], many);
  EXPECT_EQ(got[1], many);
  EXPECT_TRUE(mails[0]->failure().ok());
}

TEST_F(MailTest, WhatWasSentIsThereAfterTheSenderLeft) {
  auto receiver = make(1);
  {
    auto sender = make(0);
    sender->send({.kind = Record::Kind::gone, .region = 5});
    for (int round = 0; round < 100; ++round) {
      for (const auto& transport : transports_) ASSERT_TRUE(transport->progress().ok());
      sender->progress();
      receiver->progress();
    }
  }
  const auto record = receiver->take();
  ASSERT_TRUE(record);
  EXPECT_EQ(record->region, 5U);
  EXPECT_FALSE(receiver->take());
}

TEST_F(MailTest, NothingIsSaidToWhoNeverComes) {
  auto sender = make(0);
  sender->send({.region = 1});
  sender->progress();
  EXPECT_FALSE(sender->take());
  EXPECT_TRUE(sender->failure().ok());
}

// What a peer says that it has sent, beyond what it may or less than before, is its violation.
TEST_F(MailTest, ImpossibleCountsAreErrorsThatNameThePeer) {
  constexpr int arrived_signal = 0;
  for (const auto& [first, then] :
       {std::pair<std::uint64_t, std::uint64_t>{0, 33}, {0, UINT64_MAX}, {5, 4}}) {
    auto receiver = make(1);
    auto hostile = connect(0);
    const auto look = [&] {
      for (const auto& transport : transports_) EXPECT_TRUE(transport->progress().ok());
      receiver->progress();
      return *hostile->ready();
    };
    for (int round = 0; round < 10'000 && !look(); ++round) continue;
    ASSERT_TRUE(*hostile->try_put(nullptr, 0, 0, {arrived_signal, first}));
    look();
    for (std::uint64_t i = 0; i < first; ++i) EXPECT_TRUE(receiver->take());
    EXPECT_TRUE(receiver->failure().ok());
    ASSERT_TRUE(*hostile->try_put(nullptr, 0, 0, {arrived_signal, then}));
    look();
    EXPECT_FALSE(receiver->take());
    ASSERT_FALSE(receiver->failure().ok());
    EXPECT_EQ(receiver->failure().error().kind, ErrorKind::peer);
    EXPECT_EQ(receiver->failure().error().peer, 0);
    EXPECT_NE(receiver->failure().error().message.find(str("rank 0 reports ", then)),
              std::string::npos)
        << receiver->failure().error().message;
  }
}

}  // namespace
}  // namespace unisono::transport::nvlink
