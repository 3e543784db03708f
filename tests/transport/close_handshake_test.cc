// How ends of connections between GPUs part, over shared memory: no GPU is needed.
#include "transport/nvlink/close_handshake.h"

#include <gtest/gtest.h>

#include <chrono>

#include "conformance/harness.h"
#include "transport/shm/transport.h"

namespace unisono::transport::nvlink {
namespace {

class FarewellTest : public testing::Test {
 protected:
  void SetUp() override {
    const Key key = *fresh_key();
    for (int rank = 0; rank < 2; ++rank) {
      auto made = shm::make_transport({.key = key, .interface = {}});
      ASSERT_TRUE(made.ok()) << made.error().describe();
      transports_.push_back(std::move(made).value());
    }
    for (int rank = 0; rank < 2; ++rank) {
      auto made =
          transports_[static_cast<std::size_t>(rank)]->connect({.key = {1, 0, 9},
                                                                .ranks = 2,
                                                                .self = rank,
                                                                .peer = 1 - rank,
                                                                .peer_address = address(1 - rank),
                                                                .geometry = geometry_});
      ASSERT_TRUE(made.ok()) << made.error().describe();
      ends_.push_back(std::move(made).value());
    }
    ASSERT_TRUE(test::eventually([this] {
      bool met = true;
      for (const auto& transport : transports_) EXPECT_TRUE(transport->progress().ok());
      for (const auto& end : ends_) met = *end->ready() && met;
      return met;
    }));
  }
  std::string address(int rank) const {
    return transports_[static_cast<std::size_t>(rank)]->address();
  }

  const Geometry geometry_{.region_bytes = 64, .signals = 1};
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<Connection>> ends_;
};

TEST_F(FarewellTest, ARankOfThisProcessIsUsedUntilItHasClosedItsEndToo) {
  CloseHandshakes first;
  CloseHandshakes second;
  EXPECT_FALSE(first.wait_for_this_process());
  first.add(std::move(ends_[0]), {}, true);
  EXPECT_TRUE(first.wait_for_this_process());
  EXPECT_TRUE(first.wait_for_this_process());
  second.add(std::move(ends_[1]), {}, true);
  EXPECT_FALSE(second.wait_for_this_process());
  EXPECT_FALSE(first.wait_for_this_process());
}

TEST_F(FarewellTest, RanksOfOtherProcessesAreWaitedForAtTheEndAlone) {
  const auto begin = std::chrono::steady_clock::now();
  {
    CloseHandshakes first;
    first.add(std::move(ends_[0]), {}, false);
    EXPECT_FALSE(first.wait_for_this_process());
  }
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

}  // namespace
}  // namespace unisono::transport::nvlink
