// LL and LL128 in one slot: what has arrived in part, in whatever order, what lies behind, and
// numbers that go round.
#include "transport/fifo_codecs.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "transport/aligned_bytes.h"

namespace unisono::transport {
namespace {

using State = DecodeResult::State;

std::vector<std::byte> content(std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 7 + 1);
  return out;
}

// Each unit says by itself that it has arrived.
template <class Codec>
constexpr std::size_t unit_bytes() {
  return std::is_same_v<Codec, LlCodec> ? ll_word_bytes : ll128_line_bytes;
}

template <class Codec>
class Codecs : public testing::Test {};
using CodecTypes = testing::Types<LlCodec, Ll128Codec>;
TYPED_TEST_SUITE(Codecs, CodecTypes);

constexpr std::size_t payload = 480;
constexpr CallId call{.what = 0x8123'4567'89ab'cdef, .number = 0x7654'3210, .plan = 0xdcba'9876};

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
  const std::vector<std::byte> source = content(payload);
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
  // Calls that differ in the lowest and in the highest bit of each part, of the same size and of
  // another.
  std::vector<CallId> others(6, call);
  others[0].what ^= 1;
  others[1].what ^= std::uint64_t{1} << 63;
  others[2].number ^= 1;
  others[3].number ^= 1U << 31;
  others[4].plan ^= 1;
  others[5].plan ^= 1U << 31;
  for (const CallId& sent : others)
    for (const std::size_t bytes : {payload, std::size_t{130}, std::size_t{1}}) {
      Slot slot;
      TypeParam::encode(slot.bytes, source.data(), bytes, 3, sent);
      std::vector<std::byte> out(payload);
      const DecodeResult result = decode<TypeParam>(slot, out, 3);
      EXPECT_EQ(result.state, DecodeResult::State::other_call);
      EXPECT_EQ(result.call, sent);
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

TYPED_TEST(Codecs, AMessageOfWhichOneUnitIsMissingHasNotArrived) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4}, std::size_t{111},
                                  std::size_t{112}, std::size_t{113}, std::size_t{400}}) {
    const std::size_t extent = TypeParam::encoded_bytes(bytes);
    constexpr std::uint64_t number = 5;
    const auto sent = content(bytes);
    AlignedBytes slot(extent), before(extent);
    // What an earlier message of the same call left there.
    TypeParam::encode(before.data(), sent.data(), bytes, number - 4, call);
    for (std::size_t at = 0; at < extent; at += unit_bytes<TypeParam>()) {
      TypeParam::encode(slot.data(), sent.data(), bytes, number, call);
      std::vector<std::byte> unit(slot.data() + at, slot.data() + at + unit_bytes<TypeParam>());
      std::memcpy(slot.data() + at, before.data() + at, unit.size());
      std::vector<std::byte> got(bytes);
      Decoding decoding;
      const auto decode = [&] {
        return TypeParam::decode(slot.data(), got.data(), bytes, number, call, decoding).state;
      };
      EXPECT_EQ(decode(), State::incomplete) << bytes << " bytes without the unit at " << at;
      EXPECT_EQ(decode(), State::incomplete) << "the second time";
      std::memcpy(slot.data() + at, unit.data(), unit.size());
      EXPECT_EQ(decode(), State::complete);
      EXPECT_EQ(got, sent);
    }
  }
}

TYPED_TEST(Codecs, NothingBehindAMessageIsWritten) {
  for (std::size_t bytes = 1; bytes < 500; ++bytes) {
    const std::size_t extent = TypeParam::encoded_bytes(bytes);
    const auto sent = content(bytes);
    AlignedBytes slot(extent + 2 * ll128_line_bytes);
    std::memset(slot.data(), 0xcd, slot.bytes());
    TypeParam::encode(slot.data(), sent.data(), bytes, 5, call);
    for (std::size_t at = extent; at < slot.bytes(); ++at)
      ASSERT_EQ(slot.data()[at], std::byte{0xcd}) << bytes << " bytes";
  }
}

TEST(AlignedBytes, StayWhereTheyAreIfLessIsWanted) {
  AlignedBytes bytes(1000);
  std::byte* const before = bytes.data();
  bytes.reserve(10);
  bytes.reserve(1000);
  EXPECT_EQ(bytes.data(), before);
  EXPECT_EQ(bytes.bytes(), 1000U);
}

}  // namespace
}  // namespace unisono::transport
