// Fifos whose other end says what no end says, and whose own caller asks for what cannot be.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/str.h"
#include "transport/fake_connection.h"
#include "transport/fifo.h"
#include "transport/fifo_layout.h"
#include "transport/fifo_mapped.h"

namespace unisono::test {
namespace {

using namespace transport;
using Kind = SlotHeader::Kind;

FifoOptions small_options() {
  return {.slots = 4,
          .simple_slot_bytes = 4096,
          .ll_slot_bytes = 2048,
          .ll128_slot_bytes = 1280,
          .zero_copy = true,
          .zero_copy_min_bytes = 1000};
}

// Rank 0 sends to rank 1.
struct Ends {
  enum class How : std::uint8_t { put, mapped, mapped_alone };
  explicit Ends(Protocol protocol, How how = How::mapped,
                const FifoOptions& options = small_options())
      : a(0, 1, fifo_geometry(options)),
        b(1, 0, fifo_geometry(options)),
        layout(how == How::put ? put_layout(options) : fifo_layout(options, protocol)) {
    if (how == How::put) {
      a.join(b);
      b.join(a);
    } else {
      a.map(b, how == How::mapped);
      b.map(a, how == How::mapped);
    }
    send = make_send_fifo(a, protocol, options);
    recv = std::move(*make_recv_fifo(b, protocol, options));
  }
  Status send_bytes(std::size_t bytes) {
    return send->send(std::vector<Piece>{{content.data(), bytes}});
  }
  void pass(std::size_t bytes) {
    EXPECT_TRUE(*send->can_send());
    EXPECT_TRUE(send_bytes(bytes).ok());
    EXPECT_TRUE(*recv->arrived(bytes));
    EXPECT_TRUE(recv->release().ok());
  }
  void fill(std::size_t bytes) {
    for (std::uint64_t n = 0; n < layout.slots; ++n) {
      EXPECT_TRUE(*send->can_send());
      EXPECT_TRUE(send_bytes(bytes).ok());
    }
    EXPECT_FALSE(*send->can_send());
  }
  // What the receiver says of the next message of so many bytes.
  std::string refusal(std::size_t bytes) {
    auto arrived = recv->arrived(bytes);
    if (arrived.ok()) return *arrived ? "it has arrived" : "it has not arrived";
    EXPECT_EQ(arrived.error().kind, ErrorKind::peer);
    return arrived.error().message;
  }

  FakeConnection a, b;
  FifoLayout layout;
  std::unique_ptr<SendFifo> send;
  std::unique_ptr<RecvFifo> recv;
  std::vector<std::byte> content = std::vector<std::byte>(1 << 16, std::byte{7});
};
using How = Ends::How;

std::vector<std::pair<Protocol, How>> kinds() {
  return {{Protocol::simple, How::mapped},
          {Protocol::ll, How::mapped},
          {Protocol::ll128, How::mapped},
          {Protocol::simple, How::put}};
}

TEST(HostileFifo, CreditsThatWereNeverSentOrAreTakenBackAreRefused) {
  for (const auto& [protocol, how] : kinds()) {
    for (const std::uint64_t claimed : {std::uint64_t{0}, std::uint64_t{6}, ~std::uint64_t{0}}) {
      Ends ends(protocol, how);
      ends.pass(1000);
      ends.fill(1000);
      const int signal = protocol == Protocol::simple && how == How::mapped
                             ? ends.layout.slot_credit_signal
                             : ends.layout.credit_signal;
      EXPECT_TRUE(ends.b.try_put(nullptr, 0, 0, {signal, claimed}).ok());
      const auto said = ends.send->can_send();
      ASSERT_FALSE(said.ok()) << claimed;
      EXPECT_EQ(said.error().peer, 1);
      EXPECT_EQ(said.error().message,
                str("rank 1 released ", claimed,
                    " slots in total; it had released 1 before, and 5 messages were sent"));
    }
  }
}

TEST(HostileFifo, ASlotThatIsGivenBackBeforeItsBytesHaveLeftStaysTaken) {
  Ends ends(Protocol::simple, How::put);
  ends.a.complete_only(0);
  ends.fill(1000);
  EXPECT_TRUE(ends.b.try_put(nullptr, 0, 0, {ends.layout.credit_signal, 4}).ok());
  EXPECT_EQ(ends.send->consumed(), 4u);
  EXPECT_EQ(ends.send->sources_read(), 0u);
  EXPECT_FALSE(*ends.send->can_send());
  EXPECT_FALSE(*ends.send->flush());
  ends.a.complete_only(1);
  EXPECT_TRUE(*ends.send->can_send());
  EXPECT_EQ(ends.send->sources_read(), 1u);
}

// Short messages are those of up to 999 bytes here.
TEST(PutFifo, StagesInAsManyBuffersAsMessagesAreUnderWayAndKeepsTwoOfLongOnes) {
  for (const std::size_t bytes : {std::size_t{999}, std::size_t{1000}}) {
    Ends ends(Protocol::simple, How::put);
    const std::size_t empty = ends.send->memory_bytes();
    for (int n = 0; n < 10; ++n) ends.pass(bytes);
    const std::size_t buffer = ends.send->memory_bytes() - empty;
    EXPECT_EQ(buffer, sizeof(SlotHeader) + bytes);
    ends.a.complete_only(10);
    ends.fill(bytes);
    EXPECT_EQ(ends.send->memory_bytes(), empty + 4 * buffer);
    ends.a.complete_only(SIZE_MAX);
    EXPECT_TRUE(*ends.send->flush());
    EXPECT_EQ(ends.send->memory_bytes(), empty + (bytes == 1000 ? 2 : 4) * buffer);
  }
}

TEST(HostileFifo, ACallerThatAsksForWhatNoSlotHoldsIsABug) {
  for (const auto& [protocol, how] : kinds()) {
    Ends ends(protocol, how);
    const std::size_t most = slot_payload_bytes(small_options(), protocol);
    for (const std::size_t wrong : {std::size_t{0}, most + 1, SIZE_MAX}) {
      const auto begun = ends.send->begin(wrong);
      ASSERT_FALSE(begun.ok()) << wrong;
      EXPECT_EQ(begun.error().kind, ErrorKind::bug);
    }
    EXPECT_TRUE(ends.send->begin(most).ok());
    EXPECT_TRUE(ends.send->commit().ok());
    EXPECT_TRUE(*ends.recv->arrived(most));
    std::vector<std::byte> to(most + 1);
    for (const auto& [offset, bytes] : {std::pair{std::size_t{1}, most},
                                        {most, std::size_t{1}},
                                        {std::size_t{0}, most + 1},
                                        {SIZE_MAX, std::size_t{1}}}) {
      const Status copied = ends.recv->copy_to(to.data(), offset, bytes);
      ASSERT_FALSE(copied.ok()) << offset;
      EXPECT_EQ(copied.error().kind, ErrorKind::bug);
    }
    EXPECT_TRUE(ends.recv->release().ok());
    EXPECT_FALSE(ends.recv->copy_to(to.data(), 0, 1).ok()) << "of a message that was given back";
  }
}

TEST(HostileFifo, AReceiverThatExpectsWhatNoSlotHoldsIsABug) {
  for (const Protocol protocol : {Protocol::ll, Protocol::ll128}) {
    Ends ends(protocol);
    for (const std::size_t wrong :
         {std::size_t{0}, slot_payload_bytes(small_options(), protocol) + 1}) {
      if (wrong == 0) ends.pass(8);  // 0 is what it expects before the first
      const auto arrived = ends.recv->arrived(wrong);
      ASSERT_FALSE(arrived.ok());
      EXPECT_EQ(arrived.error().kind, ErrorKind::bug);
    }
  }
}

TEST(HostileFifo, OffersThatCannotBeReadAreRefused) {
  struct Case {
    std::size_t bytes, pieces;
    std::vector<PieceRecord> records;
    std::string says;
  };
  const std::vector<Case> cases{
      {2000, 1025, {}, "rank 0 offers 1025 pieces of memory; it may offer at most 1024"},
      {2000, 257, {}, "rank 0 offers 257 pieces of memory; it may offer at most 1024"},
      {2000, 2, {{0, 1999}, {0, 2}}, "rank 0 offers pieces that exceed the message's 2000 bytes"},
      {2000,
       1,
       {{0, ~std::uint64_t{0}}},
       "rank 0 offers pieces that exceed the message's 2000 bytes"},
      {2000, 2, {{0, 1000}, {0, 999}}, "rank 0 offers pieces 1 bytes short of the message's 2000"}};
  FifoOptions large_slots = small_options();
  large_slots.simple_slot_bytes = 1 << 20;
  for (const Case& one : cases) {
    // The slot has no room for 257 records; where it has, more than 1024 are too many.
    const bool is_large = one.pieces > max_offer_pieces;
    Ends ends(Protocol::simple, How::mapped, is_large ? large_slots : small_options());
    ASSERT_TRUE(*ends.send->can_send());
    MappedSender& raw = *ends.send->mapped();
    if (!one.records.empty())
      std::memcpy(raw.offered_pieces(), one.records.data(),
                  one.records.size() * sizeof(PieceRecord));
    raw.publish(Kind::offer, one.bytes, one.pieces, {});
    EXPECT_EQ(ends.refusal(one.bytes), one.says);
  }
}

TEST(HostileFifo, AnOfferToWhoCannotReadItIsRefused) {
  Ends ends(Protocol::simple, How::mapped_alone);
  const std::vector<Piece> piece{{ends.content.data(), 2000}};
  ASSERT_TRUE(*ends.send->can_send());
  EXPECT_FALSE(ends.send->offers_zero_copy(piece));
  const Status offered = ends.send->offer(piece);
  ASSERT_FALSE(offered.ok());
  EXPECT_EQ(offered.error().kind, ErrorKind::bug);
  const PieceRecord record{reinterpret_cast<std::uint64_t>(ends.content.data()), 2000};
  std::memcpy(ends.send->mapped()->offered_pieces(), &record, sizeof record);
  ends.send->mapped()->publish(Kind::offer, 2000, 1, {});
  EXPECT_EQ(ends.refusal(2000), "rank 0 offers 1 pieces of memory; it may offer at most 0");
}

TEST(HostileFifo, AnOfferThatAFifoDoesNotMakeIsABug) {
  Ends ends(Protocol::simple, How::put);
  for (const std::size_t bytes : {std::size_t{999}, std::size_t{4097}}) {
    const Status offered = ends.send->offer(std::vector<Piece>{{ends.content.data(), bytes}});
    ASSERT_FALSE(offered.ok()) << bytes;
    EXPECT_EQ(offered.error().kind, ErrorKind::bug);
  }
  EXPECT_EQ(ends.send->sent(), 0U);
}

TEST(HostileFifo, MessagesThatWereNotPutAreRefused) {
  {
    Ends ends(Protocol::simple, How::put);
    EXPECT_TRUE(ends.a.try_put(nullptr, 0, 0, {ends.layout.arrived_signal, 5}).ok());
    EXPECT_EQ(ends.refusal(10),
              "rank 0 reports 5 messages sent, but only 0 were consumed and there are 4 slots");
  }
  Ends ends(Protocol::simple, How::put);
  const PutHeader header{.number = 2, .bytes = 10, .call = {}};
  EXPECT_TRUE(ends.a
                  .try_put(&header, sizeof header, ends.layout.slot_offset(0) + put_header_offset,
                           {ends.layout.arrived_signal, 1})
                  .ok());
  EXPECT_EQ(ends.refusal(10), "rank 0 sent message 2; message 1 was expected");
}

// In pieces, of which the connection takes one at a time.
TEST(FifoOfOneThread, WhatTheConnectionDoesNotTakeIsPutLaterAndOnce) {
  Ends ends(Protocol::simple, How::put);
  ends.a.take_only(0);
  ASSERT_TRUE(*ends.send->can_send());
  const std::vector<Piece> pieces{{ends.content.data(), 700}, {ends.content.data() + 700, 400}};
  ASSERT_TRUE(ends.send->offer(pieces).ok());
  for (const std::size_t taken : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    EXPECT_EQ(ends.a.puts().size(), taken);
    EXPECT_EQ(ends.refusal(1100), "it has not arrived");
    EXPECT_FALSE(*ends.send->flush());
    ends.a.take_only(1);
    const bool is_last = taken == 2;
    EXPECT_EQ(*ends.send->flush(), is_last);
  }
  EXPECT_EQ(ends.refusal(1100), "it has arrived");
  EXPECT_EQ(ends.a.puts().size(), 3U);
}

// Each would be a message of its own.
TEST(FifoOfOneThread, CreditsOfShortPutsAreToldTogether) {
  Ends ends(Protocol::simple, How::put);
  for (int n = 0; n < 6; ++n) ends.pass(100);
  EXPECT_EQ(ends.b.puts().size(), 6 / credits_together(4));
  for (int n = 0; n < 4; ++n) ends.pass(2000);
  EXPECT_EQ(ends.b.puts().size(), 6 / credits_together(4) + 4);
}

// Which most connections never have.
TEST(FifoOfOneThread, AShortMessageNeedsNoMemoryOfASlot) {
  Ends ends(Protocol::simple);
  EXPECT_TRUE(*ends.send->can_send());
  EXPECT_TRUE(ends.send_bytes(head_payload_bytes).ok());
  EXPECT_LE(ends.a.reserved_end(), ends.layout.offset);
  EXPECT_TRUE(ends.send_bytes(head_payload_bytes + 1).ok());
  EXPECT_GT(ends.a.reserved_end(), ends.layout.offset);
}

TEST(FifoOfOneThread, AShortMessageHasRoomThoughAllSlotsAreTaken) {
  Ends ends(Protocol::simple);
  ends.fill(3000);
  EXPECT_TRUE(*ends.send->mapped()->look_for_room(head_payload_bytes));
  EXPECT_FALSE(*ends.send->mapped()->look_for_room(head_payload_bytes + 1));
}

}  // namespace
}  // namespace unisono::test
