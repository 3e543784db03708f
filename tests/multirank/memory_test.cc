// What a connection between hosts holds after large calls, counted in bytes.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/ranks.h"

namespace unisono::test {
namespace {

constexpr std::size_t most_bytes = 1'500'000;

// What the connection that holds most holds after calls of 16 MiB in each protocol.
std::size_t bytes_after_large_calls(Communicator& world, const char* algorithm) {
  const std::vector<float> input(std::size_t{4} << 20, 1.0F);
  std::vector<float> output(input.size());
  CallOptions options;
  options.algorithm = algorithm;
  for (const Protocol protocol : {Protocol::simple, Protocol::ll, Protocol::ll128}) {
    options.protocol = protocol;
    const Status status =
        world.all_reduce(input.data(), output.data(), static_cast<std::int64_t>(input.size()),
                         DataType::float32, ReduceOperation::sum, options);
    EXPECT_TRUE(status.ok()) << status.error().describe();
  }
  EXPECT_EQ(output.back(), static_cast<float>(world.size()));
  std::size_t most = 0;
  for (const ConnectionMemory& each : world.memory().connections) {
    EXPECT_EQ(each.transport, "socket");
    most = std::max(most, each.bytes);
  }
  return most;
}

// Messages are the longest where the whole buffer is one chunk (one_shot). A rank in the middle of
// a tree computes what it sends, so that it must be staged.
TEST(ConnectionMemory, BetweenHostsServesAllProtocols) {
  struct Case {
    int ranks;
    const char* algorithm;
  };
  for (const Case& each : {Case{2, ""}, Case{2, "one_shot"}, Case{3, "tree"}})
    run_ranks({.ranks = each.ranks, .nodes = each.ranks}, [&](Communicator& world) {
      const std::size_t bytes = bytes_after_large_calls(world, each.algorithm);
      EXPECT_GT(bytes, 0U);
      EXPECT_LE(bytes, most_bytes) << each.algorithm << " on " << each.ranks << " ranks";
    });
}

}  // namespace
}  // namespace unisono::test
