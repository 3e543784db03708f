// Sizes that nccl.txt's Table IV states, options that cannot be, and codecs whose numbers go round.

#include "transport/fifo_layout.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "transport/fifo.h"
#include "transport/fifo_codecs.h"

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

TEST(FifoLayout, OtherOptionsHaveAnotherFingerprint) {
  // The same region, laid out in another way.
  const FifoOptions a{.slots = 2, .simple_slot_bytes = 1024 - 64};
  FifoOptions b = a;
  b.simple_slot_bytes -= 64;
  EXPECT_EQ(fifo_geometry(a).region_bytes, fifo_geometry(b).region_bytes);
  EXPECT_NE(fifo_geometry(a).layout, fifo_geometry(b).layout);
}

TEST(FifoLayout, RanksOfOneMachineShareTheRoomOfTheirSlots) {
  const auto shared_by = [](int ranks) {
    return FifoOptions{.simple_slot_bytes = 0}.shared_by(ranks);
  };
  EXPECT_EQ(shared_by(1).simple_slot_bytes, std::size_t{512} << 10);
  EXPECT_EQ(shared_by(2).simple_slot_bytes, std::size_t{512} << 10);
  EXPECT_EQ(shared_by(4).simple_slot_bytes, std::size_t{128} << 10);
  EXPECT_EQ(shared_by(16).simple_slot_bytes, std::size_t{64} << 10);
  for (int ranks = 1; ranks < 1000; ++ranks) {
    EXPECT_TRUE(shared_by(ranks).check().ok()) << ranks;
    EXPECT_LE(shared_by(ranks + 1).simple_slot_bytes, shared_by(ranks).simple_slot_bytes);
  }
  EXPECT_EQ(FifoOptions{.simple_slot_bytes = 4096}.shared_by(16).simple_slot_bytes, 4096U);
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
  EXPECT_NE(message({.simple_slot_bytes = 100}).find("UNISONO_SIMPLE_SLOT_BYTES is 100"),
            std::string::npos);
  EXPECT_NE(message({.ll_slot_bytes = 0}).find("UNISONO_LL_SLOT_BYTES is 0"), std::string::npos);
  EXPECT_NE(message({.ll128_slot_bytes = 64}).find("multiple of 128"), std::string::npos);
  EXPECT_NE(message({.ll128_slot_bytes = std::size_t{1} << 28}).find("LL128"), std::string::npos);
}

template <class Codec>
class Codecs : public testing::Test {};
using CodecTypes = testing::Types<LlCodec, Ll128Codec>;
TYPED_TEST_SUITE(Codecs, CodecTypes);

constexpr std::size_t payload = 480;
constexpr std::uint64_t call = 0x8123'4567'89ab'cdef;

struct alignas(128) Slot {
  std::byte bytes[1024] = {};
};

template <class Codec>
DecodeResult decode(const Slot& slot, std::vector<std::byte>& out, std::uint64_t number) {
  Decoding decoding;
  return Codec::decode(slot.bytes, out.data(), out.size(), number, call, decoding);
}

TYPED_TEST(Codecs, NothingIsFoundInMemoryThatWasNeverWritten) {
  Slot slot;
  std::vector<std::byte> out(payload);
  for (const std::uint64_t number : {0u, 1u, 7u, 255u})
    EXPECT_EQ(decode<TypeParam>(slot, out, number).state, DecodeResult::State::incomplete);
}

TYPED_TEST(Codecs, APartOfAMessageIsNotTheMessage) {
  std::vector<std::byte> source(payload);
  for (std::size_t i = 0; i < payload; ++i) source[i] = static_cast<std::byte>(i * 7 + 1);
  Slot whole;
  TypeParam::encode(whole.bytes, source.data(), payload, 41, call);
  // What the reader sees when the writer has got as far as each 8 bytes.
  Slot partial;
  std::vector<std::byte> out(payload);
  Decoding decoding;
  std::size_t last = 0;
  for (std::size_t at = 0; at < sizeof whole.bytes; at += 8)
    if (std::memcmp(whole.bytes + at, partial.bytes + at, 8) != 0) last = at;
  for (std::size_t at = 0; at <= last; at += 8) {
    const auto before = TypeParam::decode(partial.bytes, out.data(), payload, 41, call, decoding);
    EXPECT_EQ(before.state, DecodeResult::State::incomplete) << at;
    std::memcpy(partial.bytes + at, whole.bytes + at, 8);
  }
  EXPECT_EQ(TypeParam::decode(partial.bytes, out.data(), payload, 41, call, decoding).state,
            DecodeResult::State::complete);
  EXPECT_EQ(out, source);
}

TYPED_TEST(Codecs, AnEarlierMessageIsNotTakenForTheNext) {
  Slot slot;
  const std::vector<std::byte> source(payload, std::byte{9});
  TypeParam::encode(slot.bytes, source.data(), payload, 3, call);
  std::vector<std::byte> out(payload);
  EXPECT_EQ(decode<TypeParam>(slot, out, 11).state, DecodeResult::State::incomplete);
  // A short one does not make the long one behind it whole again.
  TypeParam::encode(slot.bytes, source.data(), 130, 11, call);
  EXPECT_EQ(decode<TypeParam>(slot, out, 11).state, DecodeResult::State::other_size);
  EXPECT_EQ(decode<TypeParam>(slot, out, 11).sent, 130u);
}

TYPED_TEST(Codecs, AMessageOfAnotherCallIsNotTaken) {
  const std::vector<std::byte> source(payload, std::byte{9});
  // Calls that differ in their lowest and in their highest bit, of the same size and of another.
  for (const std::uint64_t sent : {call ^ 1, call ^ std::uint64_t{1} << 63})
    for (const std::size_t bytes : {payload, std::size_t{130}, std::size_t{1}}) {
      Slot slot;
      TypeParam::encode(slot.bytes, source.data(), bytes, 3, sent);
      std::vector<std::byte> out(payload);
      const DecodeResult result = decode<TypeParam>(slot, out, 3);
      EXPECT_EQ(result.state, DecodeResult::State::other_call);
      EXPECT_EQ(result.sent, sent);
      EXPECT_EQ(out, std::vector<std::byte>(payload));
    }
}

// Message n and message n + (numbers in a flag) have one flag. What the first left behind a short
// message must not be taken for the other's; filling in between prevents it.
TYPED_TEST(Codecs, FillingRemovesFlagsBeforeTheirNumbersComeRound) {
  const std::uint64_t round =
      std::is_same_v<TypeParam, LlCodec> ? std::uint64_t{1} << 32 : std::uint64_t{1} << 40;
  EXPECT_LT(TypeParam::fill_interval, round);
  const std::vector<std::byte> old(payload, std::byte{1});
  std::vector<std::byte> out(payload);

  Slot slot;
  TypeParam::encode(slot.bytes, old.data(), payload, 6, call);
  EXPECT_EQ(decode<TypeParam>(slot, out, 6 + round).state, DecodeResult::State::complete)
      << "this is the mistake that filling prevents; if it cannot happen, filling is not needed";
  TypeParam::encode(slot.bytes, old.data(), 1, 8, call);
  TypeParam::fill(slot.bytes, 1, payload, 8);
  EXPECT_EQ(decode<TypeParam>(slot, out, 6 + round).state, DecodeResult::State::incomplete);
  // The head of the late message is there, the rest is not yet.
  Slot late;
  TypeParam::encode(late.bytes, old.data(), payload, 6 + round, call);
  std::memcpy(slot.bytes, late.bytes, 128);
  EXPECT_EQ(decode<TypeParam>(slot, out, 6 + round).state, DecodeResult::State::incomplete);
}

}  // namespace
}  // namespace unisono::transport
