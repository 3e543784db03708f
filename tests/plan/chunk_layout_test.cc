#include "plan/chunk_layout.h"
#include "support/sanitized.h"

#include <gtest/gtest.h>

#include <random>

namespace unisono::plan {
namespace {

// Blocks of every ragged kind: fewer elements than chunks, one more, one less, primes, large.
TEST(ChunkLayout, ChunksPartitionTheBlock) {
  std::mt19937_64 random(1);
  for (int round = 0; round < (test::is_sanitized ? 500 : 5000); ++round) {
    const int chunks = 1 + static_cast<int>(random() % (round % 2 == 0 ? 12 : 3000));
    const std::int64_t element_bytes = std::int64_t{1} << (random() % 4);
    std::int64_t count = static_cast<std::int64_t>(random() >> (1 + random() % 63)) >> 20;
    if (round % 3 == 0) count = std::max(0, chunks + static_cast<int>(random() % 3) - 1);
    const ChunkLayout layout = ChunkLayout::of(count, chunks, element_bytes);
    std::int64_t end = 0;
    bool has_short = false;
    for (int i = 0; i < chunks; ++i) {
      ASSERT_EQ(layout.begin(i), end) << count << " elements, chunk " << i << " of " << chunks;
      end = layout.end(i);
      ASSERT_LE(layout.elements(i), layout.chunk_elements);
      // A short chunk is followed by empty ones only.
      ASSERT_TRUE(!has_short || layout.elements(i) == 0);
      has_short = has_short || layout.elements(i) < layout.chunk_elements;
    }
    ASSERT_EQ(end, count) << chunks << " chunks of " << element_bytes << "-byte elements";
  }
}

TEST(ChunkLayout, SmallChunksAreEvenAndLargeOnesWholeCacheLines) {
  // 100 bytes a chunk stay as they are; 513 become 576 = 9 * 64.
  EXPECT_EQ(ChunkLayout::of(1000, 10, 1).chunk_elements, 100);
  EXPECT_EQ(ChunkLayout::of(5121, 10, 1).chunk_elements, 576);
  EXPECT_EQ(ChunkLayout::of(5120, 10, 1).chunk_elements, 512);
  for (std::int64_t element_bytes : {1, 2, 4, 8}) {
    EXPECT_EQ(ChunkLayout::of(9991, 7, element_bytes).chunk_elements * element_bytes % 64, 0);
    for (std::int64_t count : {199991, 1000003})
      EXPECT_EQ(ChunkLayout::of(count, 7, element_bytes).chunk_elements * element_bytes % 512, 0);
  }
}

TEST(ChunkLayout, NoElementsMakeEmptyChunks) {
  const ChunkLayout layout = ChunkLayout::of(0, 4, 8);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(layout.elements(i), 0);
}

}  // namespace
}  // namespace unisono::plan
