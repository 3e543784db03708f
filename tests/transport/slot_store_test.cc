#include "transport/slot_store.h"

#include <gtest/gtest.h>

#include <vector>

namespace unisono::transport {
namespace {

// More messages than the longest time between two trials, of sizes that halve to odd ones.
TEST(SlotStore, CopiesEveryMessageWhicheverStoreIsTriedOrChosen) {
  constexpr std::size_t largest = std::size_t{40} << 10;
  constexpr std::byte poison{0xa5};
  std::vector<std::byte> source(largest);
  for (std::size_t i = 0; i < largest; ++i) source[i] = static_cast<std::byte>(i * 31 + i / 256);
  SlotStore store(false);
  for (std::size_t message = 0; message < 600; ++message) {
    const std::size_t bytes = SlotStore::least_bytes + message * 613 % (largest - 4200);
    std::vector<std::byte> slot(bytes + 64, poison), expected = slot;
    std::copy_n(source.begin(), bytes, expected.begin());
    store.copy(slot.data(), source.data(), bytes);
    ASSERT_EQ(slot, expected) << "message " << message << " of " << bytes << " bytes";
  }
}

// Between two AMD cores without a common cache, where a message of 256 KiB takes 52 us by vectors
// and 34 streamed; with a common cache, 16 and 36; and on a processor with a slow vector store.
TEST(StoreTimes, StreamsWhereThatIsFasterUnlessMemoryIsShared) {
  const StoreTimes far{.vectors = 1834, .string = 1693, .streaming = 942};
  EXPECT_EQ(far.best(false), StoreWay::streaming);
  EXPECT_EQ(far.best(true), StoreWay::vectors);
  const StoreTimes near{.vectors = 952, .string = 832, .streaming = 922};
  EXPECT_EQ(near.best(false), StoreWay::vectors);
  const StoreTimes slow_vectors{.vectors = 4000, .string = 1000, .streaming = 1100};
  EXPECT_EQ(slow_vectors.best(false), StoreWay::string);
}

TEST(StoreTimes, OneTrialDoesNotOutweighManyAndSomeDo) {
  const StoreTimes near{.vectors = 952, .string = 832, .streaming = 922};
  const StoreTimes far{.vectors = 1834, .string = 1693, .streaming = 942};
  StoreTimes tried;
  for (int trial = 0; trial < 20; ++trial) tried.add(near);
  tried.add(far);
  EXPECT_EQ(tried.best(false), StoreWay::vectors);
  for (int trial = 0; trial < 5; ++trial) tried.add(far);
  EXPECT_EQ(tried.best(false), StoreWay::streaming);
}

}  // namespace
}  // namespace unisono::transport
