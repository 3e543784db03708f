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
  SlotStore store;
  for (std::size_t message = 0; message < 600; ++message) {
    const std::size_t bytes = SlotStore::least_bytes + message * 613 % (largest - 4200);
    std::vector<std::byte> slot(bytes + 64, poison), expected = slot;
    std::copy_n(source.begin(), bytes, expected.begin());
    store.copy(slot.data(), source.data(), bytes);
    ASSERT_EQ(slot, expected) << "message " << message << " of " << bytes << " bytes";
  }
}

}  // namespace
}  // namespace unisono::transport
