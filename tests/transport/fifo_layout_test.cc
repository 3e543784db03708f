// Sizes that nccl.txt's Table IV states, and options that cannot be.

#include "transport/fifo_layout.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "transport/fifo.h"

namespace unisono::transport {
namespace {

TEST(FifoLayout, PayloadsAreThoseOfTableIV) {
  const FifoOptions options;
  EXPECT_EQ(slot_payload_bytes(options, Protocol::simple), 512u * 1024);
  EXPECT_EQ(slot_payload_bytes(options, Protocol::ll), 16u * 1024);
  EXPECT_EQ(slot_payload_bytes(options, Protocol::ll128), 576'000u);  // 562.5 KiB
}

TEST(FifoLayout, SlotsDoNotOverlapAndFillTheRegion) {
  const FifoOptions options{
      .slots = 3, .simple_slot_bytes = 192, .ll_slot_bytes = 64, .ll128_slot_bytes = 256};
  ASSERT_TRUE(options.check().ok());
  std::size_t end = 0;
  for (const Protocol protocol : {Protocol::simple, Protocol::ll, Protocol::ll128}) {
    const FifoLayout layout = fifo_layout(options, protocol);
    EXPECT_EQ(layout.heads_offset, end);
    if (protocol == Protocol::simple) end += layout.heads * head_stride;
    for (std::uint64_t number = 6; number < 9; ++number) {
      EXPECT_EQ(layout.slot_offset(number), end);
      EXPECT_EQ(layout.slot_offset(number) % slot_alignment, 0u);
      end += layout.slot_stride;
    }
  }
  EXPECT_EQ(fifo_geometry(options).region_bytes, end);
}

TEST(FifoLayout, WhereNothingIsMappedOneSetOfSlotsHoldsMessagesOfEveryProtocol) {
  const std::size_t least = 64, most = std::size_t{1} << 20;
  for (const std::size_t simple : {least, most})
    for (const std::size_t ll : {least, most})
      for (const std::size_t ll128 : {2 * least, most}) {
        const FifoOptions options{.slots = 2,
                                  .simple_slot_bytes = simple,
                                  .ll_slot_bytes = ll,
                                  .ll128_slot_bytes = ll128};
        ASSERT_TRUE(options.check().ok());
        const FifoLayout layout = put_layout(options);
        for (const Protocol protocol : {Protocol::simple, Protocol::ll, Protocol::ll128})
          EXPECT_GE(layout.payload_bytes, slot_payload_bytes(options, protocol));
        std::size_t end = 0;
        for (std::uint64_t number = 4; number < 6; ++number) {
          EXPECT_EQ(layout.slot_offset(number), end);
          EXPECT_EQ(layout.slot_offset(number) % slot_alignment, 0u);
          end += layout.slot_stride;
        }
        EXPECT_GE(layout.slot_stride, sizeof(SlotHeader) + layout.payload_bytes);
        EXPECT_EQ(layout.list_offset(2), end);
        EXPECT_EQ(layout.list_offset(3), end + sizeof(DestinationList));
        EXPECT_LE(end + 2 * sizeof(DestinationList), fifo_geometry(options).region_bytes);
      }
}

TEST(FifoLayout, OtherOptionsHaveAnotherFingerprint) {
  // The same region, laid out in another way.
  const FifoOptions a{.slots = 2, .simple_slot_bytes = 1024 - 64};
  FifoOptions b = a;
  b.simple_slot_bytes -= 64;
  EXPECT_EQ(fifo_geometry(a).region_bytes, fifo_geometry(b).region_bytes);
  EXPECT_NE(fifo_geometry(a).layout, fifo_geometry(b).layout);
  // The same layout, but one end waits for credits that the other holds back.
  b = a;
  b.zero_copy_min_bytes = 1024;
  EXPECT_EQ(fifo_geometry(a).region_bytes, fifo_geometry(b).region_bytes);
  EXPECT_NE(fifo_geometry(a).layout, fifo_geometry(b).layout);
}

TEST(FifoLayout, RanksOfOneMachineShareTheRoomOfTheirSlots) {
  const auto shared_by = [](int ranks, std::size_t cache_kib) {
    return FifoOptions{.simple_slot_bytes = 0}.shared_by(ranks, cache_kib << 10);
  };
  const auto slot_kib = [&](int ranks, std::size_t cache_kib) {
    return shared_by(ranks, cache_kib).simple_slot_bytes >> 10;
  };
  // Where nothing is known of the caches.
  constexpr std::size_t unknown = UINT32_MAX;
  EXPECT_EQ(slot_kib(1, unknown), 512U);
  EXPECT_EQ(slot_kib(2, unknown), 512U);
  EXPECT_EQ(slot_kib(4, unknown), 128U);
  EXPECT_EQ(slot_kib(16, unknown), 64U);
  // Rings of twice the cache; alone on its machine, a rank has no neighbour to share one with.
  EXPECT_EQ(slot_kib(1, 512), 512U);
  EXPECT_EQ(slot_kib(2, 512), 128U);
  EXPECT_EQ(slot_kib(2, 1280), 256U);
  EXPECT_EQ(slot_kib(2, 2048), 512U);
  EXPECT_EQ(slot_kib(2, 64), 64U);
  EXPECT_EQ(slot_kib(4, 2048), 128U);
  for (const std::size_t cache_kib : {std::size_t{0}, std::size_t{512}, unknown})
    for (int ranks = 1; ranks < 1000; ++ranks) {
      EXPECT_TRUE(shared_by(ranks, cache_kib).check().ok()) << ranks;
      EXPECT_LE(slot_kib(ranks + 1, cache_kib), slot_kib(ranks, cache_kib));
      EXPECT_EQ(shared_by(ranks, cache_kib).shares_memory_bandwidth, ranks > 2);
    }
  EXPECT_EQ(FifoOptions{.simple_slot_bytes = 4096}.shared_by(16, 512 << 10).simple_slot_bytes,
            4096U);
  // The number of slots is checked later.
  const FifoOptions none{.slots = 0, .simple_slot_bytes = 0};
  EXPECT_FALSE(none.shared_by(2, 512 << 10).check().ok());
}

TEST(FifoLayout, OptionsThatCannotBeAreNamed) {
  const auto message = [](FifoOptions options) {
    const Status status = options.check();
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_TRUE(FifoOptions{}.check().ok());
  EXPECT_NE(message({.slots = 0}).find("UNISONO_SLOTS is 0"), std::string::npos);
  EXPECT_NE(message({.slots = -7}).find("-7"), std::string::npos);
  EXPECT_NE(message({.slots = 1}).find("2 to"), std::string::npos);
  EXPECT_TRUE(FifoOptions{.slots = 1024}.check().ok());
  EXPECT_NE(message({.slots = 1025}).find("2 to 1024"), std::string::npos);
  EXPECT_NE(message({.simple_slot_bytes = 100}).find("UNISONO_SIMPLE_SLOT_BYTES is 100"),
            std::string::npos);
  EXPECT_NE(message({.ll_slot_bytes = 0}).find("UNISONO_LL_SLOT_BYTES is 0"), std::string::npos);
  EXPECT_NE(message({.ll128_slot_bytes = 64}).find("multiple of 128"), std::string::npos);
  EXPECT_NE(message({.ll128_slot_bytes = std::size_t{1} << 28}).find("LL128"), std::string::npos);
}

}  // namespace
}  // namespace unisono::transport
