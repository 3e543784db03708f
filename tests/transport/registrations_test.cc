// What a rank believes of where others have mapped its device memory. By the emulated driver.
#include "transport/nvlink/registrations.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "conformance/harness.h"
#include "transport/shm/transport.h"

namespace unisono::transport::nvlink {
namespace {

constexpr std::size_t bytes = 10'000;

// Rank 0's registrations, of one region that rank 1 has been told of; rank 1 says what the test
// wants.
class RegistrationsTest : public testing::Test {
 protected:
  void SetUp() override {
    const Key key = *fresh_key();
    for (int rank = 0; rank < 2; ++rank) {
      auto made = shm::make_transport({.key = key, .interface = {}});
      ASSERT_TRUE(made.ok()) << made.error().describe();
      transports_.push_back(std::move(*made));
    }
    auto device = sys::cuda::Device::open(0);
    ASSERT_TRUE(device.ok()) << device.error().describe();
    auto memory = sys::cuda::Memory::allocate(*device, bytes);
    ASSERT_TRUE(memory.ok()) << memory.error().describe();
    memory_ = std::move(*memory);
    std::vector<std::unique_ptr<Mail>> mails(2);
    mails[1] = make_mail(0);
    peer_ = make_mail(1);
    owner_ = std::make_unique<Registrations>(*device, std::move(mails));
    ASSERT_TRUE(owner_->add(memory_.address(), bytes));
    ASSERT_TRUE(test::eventually([&] {
      advance();
      if (const auto record = peer_->take()) told_ = *record;
      return told_.region != 0;
    }));
    EXPECT_EQ(told_.address, memory_.address());
  }
  std::unique_ptr<Mail> make_mail(std::size_t rank) {
    auto connection = transports_[rank]->connect({.key = {1, 0, 7},
                                                  .ranks = 2,
                                                  .self = static_cast<int>(rank),
                                                  .peer = static_cast<int>(1 - rank),
                                                  .peer_address = transports_[1 - rank]->address(),
                                                  .geometry = Mail::geometry()});
    EXPECT_TRUE(connection.ok()) << connection.error().describe();
    return std::make_unique<Mail>(std::move(*connection));
  }
  void advance() {
    for (const auto& transport : transports_) EXPECT_TRUE(transport->progress().ok());
    peer_->progress();
    owner_->advance(true);
  }
  void answer(sys::cuda::DeviceAddress address) {
    peer_->send({.kind = Record::Kind::answer, .region = told_.region, .address = address});
    advance();
  }
  // Where rank 1 reaches the byte at `offset` of the memory, by what is believed.
  sys::cuda::DeviceAddress reached_at(std::size_t offset) {
    std::array<sys::cuda::DeviceAddress, 2> by_rank{};
    owner_->find(memory_.address() + offset, 1, by_rank);
    return by_rank[1];
  }

  std::vector<std::unique_ptr<Transport>> transports_;
  sys::cuda::Memory memory_;
  std::unique_ptr<Mail> peer_;
  std::unique_ptr<Registrations> owner_;
  Record told_{.region = 0};
};

TEST_F(RegistrationsTest, AnAnswerSaysWhereThePeerReachesIt) {
  EXPECT_FALSE(owner_->all_have_answered());
  const sys::cuda::DeviceAddress there = memory_.address() + (std::uint64_t{1} << 30);
  answer(there);
  EXPECT_TRUE(owner_->all_have_answered());
  EXPECT_EQ(reached_at(100), there + 100);
}

TEST_F(RegistrationsTest, AnAddressWhereItCannotLieIsNotUsed) {
  answer(memory_.address() + 8);
  EXPECT_TRUE(owner_->all_have_answered());
  EXPECT_EQ(reached_at(0), 0U);
}

TEST_F(RegistrationsTest, AnAddressWhoseEndIsPastTheLastIsNotUsed) {
  answer(UINT64_MAX - 4095 + memory_.address() % 4096);
  EXPECT_TRUE(owner_->all_have_answered());
  EXPECT_EQ(reached_at(0), 0U);
}

TEST_F(RegistrationsTest, ASecondAnswerEndsTheBelief) {
  answer(memory_.address());
  EXPECT_EQ(reached_at(0), memory_.address());
  answer(memory_.address() + 4096);
  EXPECT_EQ(reached_at(0), 0U);
}

TEST_F(RegistrationsTest, WhatIsNotKnownChangesNothing) {
  answer(memory_.address());
  peer_->send({.kind = Record::Kind::answer, .region = told_.region + 1, .address = 4096});
  peer_->send({.kind = static_cast<Record::Kind>(77), .region = told_.region});
  advance();
  EXPECT_EQ(reached_at(0), memory_.address());
}

}  // namespace
}  // namespace unisono::transport::nvlink
