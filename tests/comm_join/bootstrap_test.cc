#include "comm/join/bootstrap.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/real_ranks.h"

namespace unisono::comm {
namespace {

class BootstrapOfRanks : public testing::TestWithParam<int> {};

TEST_P(BootstrapOfRanks, EveryRankLearnsWhoIsThere) {
  const int p = GetParam();
  const auto results = bootstrap_all(p);
  for (int rank = 0; rank < p; ++rank) {
    const auto& result = results[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(result.ok()) << result.error().describe();
    EXPECT_EQ(result.value().roster.ranks(), p);
    EXPECT_EQ(result.value().roster.most_on_a_host(), p);
    EXPECT_EQ(result.value().world->rank(), rank);
    EXPECT_EQ(result.value().world->size(), p);
    EXPECT_EQ(result.value().world->communicator(), results[0].value().world->communicator());
  }
}

TEST_P(BootstrapOfRanks, ManyExchangesFollowOneAnother) {
  const int p = GetParam();
  auto results = bootstrap_all(p);
  run_ranks(p, [&](int rank) {
    auto& result = results[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(result.ok()) << result.error().describe();
    for (int round = 0; round < 20; ++round) {
      const auto gathered =
          result->world->all_gather(contribution_of(rank + round), 60 * second_ns);
      ASSERT_TRUE(gathered.ok()) << gathered.error().describe();
      for (int other = 0; other < p; ++other)
        EXPECT_TRUE(is_contribution_of(other + round, gathered.value()[other]));
    }
    const Status barrier = result->world->barrier(60 * second_ns);
    EXPECT_TRUE(barrier.ok()) << barrier.error().describe();
  });
}

TEST_P(BootstrapOfRanks, ARankThatCannotJoinIsNamedByAllAtOnce) {
  const int p = GetParam();
  if (p == 1) GTEST_SKIP() << "nobody else is there";
  for (const int absent : {0, p / 2, p - 1}) {
    // Nobody's timeout ends this: it is longer than the test may take.
    const auto results = bootstrap_all(p, 10'000 * second_ns, [&](BootstrapOptions& options) {
      if (options.rank == absent) options.failure = environment_error("its device is lost");
    });
    for (int rank = 0; rank < p; ++rank) {
      const auto& result = results[static_cast<std::size_t>(rank)];
      ASSERT_FALSE(result.ok());
      EXPECT_FALSE(result.error().timed_out) << result.error().describe();
      const std::string who = rank == absent ? "" : str("rank ", absent, " cannot join: ");
      EXPECT_EQ(result.error().message, who + "its device is lost");
      EXPECT_EQ(result.error().peer, rank == absent ? -1 : absent);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, BootstrapOfRanks, testing::Values(1, 2, 3, 5, 8, 13));

}  // namespace
}  // namespace unisono::comm
