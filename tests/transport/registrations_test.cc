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
    device_ = *device;
    memory_ = allocate();
    std::vector<std::unique_ptr<Mail>> mails(2);
    mails[1] = make_mail(0);
    peer_ = make_mail(1);
    owner_ = std::make_unique<Registrations>(device_, std::move(mails));
    ASSERT_TRUE(owner_->add(memory_.address(), bytes));
    told_ = next_record();
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
  sys::cuda::Memory allocate() const {
    auto memory = sys::cuda::Memory::allocate(device_, bytes);
    EXPECT_TRUE(memory.ok()) << memory.error().describe();
    return memory.ok() ? std::move(*memory) : sys::cuda::Memory();
  }
  void advance() {
    for (const auto& transport : transports_) EXPECT_TRUE(transport->progress().ok());
    peer_->progress();
    owner_->advance(true);
  }
  // What rank 1 is told next.
  Record next_record() {
    std::optional<Record> record;
    EXPECT_TRUE(test::eventually([&] {
      advance();
      record = peer_->take();
      return record.has_value();
    }));
    return record.value_or(Record{});
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
  std::shared_ptr<const sys::cuda::Device> device_;
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

// Device memory is registered lazily and kept: the second time nothing is told.
TEST_F(RegistrationsTest, MemoryIsToldWhenItIsFirstAskedForAndFoundAgain) {
  const auto other = allocate();
  std::array<sys::cuda::DeviceAddress, 2> by_rank{};
  owner_->find(other.address(), bytes, by_rank);
  EXPECT_TRUE(owner_->has_news());
  EXPECT_EQ(by_rank[1], 0U);
  EXPECT_EQ(owner_->shared_bytes(), bytes);
  const Record told = next_record();
  EXPECT_EQ(told.kind, Record::Kind::piece);
  EXPECT_EQ(told.address, other.address());
  EXPECT_EQ(owner_->shared_bytes(), 2 * bytes);

  owner_->find(other.address() + 50, 10, by_rank);
  EXPECT_TRUE(owner_->add(other.address() + 50, 10));
  EXPECT_EQ(owner_->shared_bytes(), 2 * bytes);
  for (int i = 0; i < 20; ++i) advance();
  EXPECT_FALSE(peer_->take());
}

// A call looks for news as long as there may be some: what is known only when somebody happens to
// look makes calls slow until then.
TEST_F(RegistrationsTest, ThereIsNewsFromTheFirstUseOfMemoryToTheLastAnswer) {
  EXPECT_TRUE(owner_->has_news()) << "rank 1 has not answered";
  answer(memory_.address());
  EXPECT_TRUE(test::eventually([&] {
    advance();
    return !owner_->has_news();
  }));
  const auto other = allocate();
  std::array<sys::cuda::DeviceAddress, 2> by_rank{};
  owner_->find(other.address(), bytes, by_rank);
  EXPECT_TRUE(owner_->has_news()) << "it is not told";
  told_ = next_record();
  EXPECT_TRUE(owner_->has_news()) << "it is not answered";
  answer(0);
  EXPECT_FALSE(owner_->has_news());
}

// Also for a rank whose own memory is known to all.
TEST_F(RegistrationsTest, WhatAnotherRankTellsIsNews) {
  answer(memory_.address());
  EXPECT_FALSE(owner_->has_news());
  peer_->send({.kind = Record::Kind::gone, .region = 7});
  EXPECT_TRUE(test::eventually([&] {
    peer_->progress();
    return owner_->has_news();
  }));
  owner_->advance(true);
  EXPECT_FALSE(owner_->has_news());
}

TEST_F(RegistrationsTest, MemoryThatIsFreedIsNotUsedAndThePeerIsTold) {
  answer(memory_.address());
  const auto address = memory_.address();
  memory_ = {};
  std::array<sys::cuda::DeviceAddress, 2> by_rank{};
  owner_->find(address, 1, by_rank);
  EXPECT_EQ(by_rank[1], 0U);
  const Record gone = next_record();
  EXPECT_EQ(gone.kind, Record::Kind::gone);
  EXPECT_EQ(gone.region, told_.region);
  EXPECT_EQ(owner_->shared_bytes(), 0U);
}

// The driver's number for it tells it from what was there before.
TEST_F(RegistrationsTest, AnotherAllocationAtTheSameAddressesIsAnotherRegion) {
  answer(memory_.address());
  const auto address = memory_.address();
  memory_ = {};
  memory_ = allocate();
  ASSERT_EQ(memory_.address(), address) << "the emulated driver fills the first gap";
  EXPECT_EQ(reached_at(0), 0U);
  const Record again = next_record();
  EXPECT_EQ(again.kind, Record::Kind::piece);
  EXPECT_NE(again.region, told_.region);
  // What the peer said of the old one is not believed of this one.
  answer(address);
  EXPECT_EQ(reached_at(0), 0U);
  told_ = again;
  answer(address + 4096);
  EXPECT_EQ(reached_at(0), address + 4096);
}

TEST_F(RegistrationsTest, ThereIsABoundAndFreedMemoryMakesRoom) {
  std::vector<sys::cuda::Memory> all;
  while (all.size() + 1 < Registrations::most_regions) {
    all.push_back(allocate());
    ASSERT_TRUE(owner_->add(all.back().address(), bytes)) << all.size();
  }
  const auto past = allocate();
  EXPECT_FALSE(owner_->add(past.address(), bytes));
  all.pop_back();
  EXPECT_TRUE(test::eventually([&] {
    advance();
    while (peer_->take()) continue;
    return owner_->add(past.address(), bytes);
  }));
}

TEST_F(RegistrationsTest, ThePeerMapsMemoryAndLetsGoOfWhatIsGone) {
  std::vector<std::unique_ptr<Mail>> mails(2);
  peer_->send({.kind = Record::Kind::answer, .region = told_.region, .address = 0});
  advance();
  mails[0] = std::move(peer_);
  Registrations importer(device_, std::move(mails));
  const auto until_mapped = [&](std::size_t expected) {
    return test::eventually([&] {
      owner_->advance(true);
      importer.advance(true);
      return importer.mapped_bytes() == expected;
    });
  };
  auto other = allocate();
  ASSERT_TRUE(owner_->add(other.address(), bytes));
  EXPECT_TRUE(until_mapped(bytes));
  EXPECT_TRUE(test::eventually([&] {
    owner_->advance(true);
    return owner_->all_have_answered();
  }));
  std::array<sys::cuda::DeviceAddress, 2> by_rank{};
  owner_->find(other.address() + 9, 1, by_rank);
  EXPECT_EQ(by_rank[1], other.address() + 9) << "of one process";
  other = {};
  EXPECT_TRUE(until_mapped(0));
}

}  // namespace
}  // namespace unisono::transport::nvlink
