// Immediates, messages and gets of the transport over libfabric: the order in which signals are
// seen, what counts as complete, and what a peer cannot say. It needs no library.

#if __has_include(<rdma/fabric.h>)

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/key.h"
#include "base/wire.h"
#include "transport/ofi/gets.h"
#include "transport/ofi/inbox.h"
#include "transport/ofi/message.h"
#include "transport/ofi/outbox.h"

namespace unisono {
namespace {

using transport::ofi::Gets;
using transport::ofi::Immediate;
using transport::ofi::Inbox;
using transport::ofi::Message;
using transport::ofi::MessageType;
using transport::ofi::Note;
using transport::ofi::Outbox;

TEST(OfiInbox, ASignalIsSeenAfterAllWritesBeforeIt) {
  std::mt19937_64 random(3);
  std::atomic<std::uint64_t> signals[2] = {0, 0};
  Inbox inbox(signals, 2, 1);
  // Write n raises signal n % 2 by one; batches as long as the window arrive in any order.
  std::uint64_t sent = 0;
  for (int batch = 0; batch < 50; ++batch) {
    std::vector<std::uint64_t> order(1 + random() % Inbox::window);
    for (std::uint64_t& write : order) write = sent++;
    std::ranges::shuffle(order, random);
    std::vector<bool> has_arrived(order.size());
    const std::uint64_t first = sent - order.size();
    for (const std::uint64_t write : order) {
      ASSERT_TRUE(inbox
                      .arrive(Immediate{.sequence = static_cast<std::uint8_t>(write),
                                        .index = static_cast<std::uint32_t>(write % 2),
                                        .is_in_place = write % 3 == 0,
                                        .increment = 1})
                      .ok());
      has_arrived[write - first] = true;
      const auto whole =
          static_cast<std::uint64_t>(std::ranges::find(has_arrived, false) - has_arrived.begin());
      const std::uint64_t in_order = first + whole;
      ASSERT_EQ(inbox.in_order(), in_order);
      ASSERT_EQ(inbox.in_place(), (in_order + 2) / 3);
      ASSERT_EQ(signals[0].load(), (in_order + 1) / 2);
      ASSERT_EQ(signals[1].load(), in_order / 2);
    }
  }
}

TEST(OfiInbox, WhatAPeerCannotSendIsRefused) {
  std::atomic<std::uint64_t> signals[2] = {0, 0};
  const auto refused = [](Status status, std::string_view part) {
    if (status.ok()) return testing::AssertionFailure() << "taken";
    if (status.error().message.find(part) != std::string::npos && status.error().peer == 1)
      return testing::AssertionSuccess();
    return testing::AssertionFailure() << status.error().message;
  };
  {
    Inbox inbox(signals, 2, 1);
    EXPECT_TRUE(refused(inbox.arrive(Immediate{.sequence = 128}), "counts its writes wrong"));
    EXPECT_TRUE(inbox.arrive(Immediate{.sequence = 5}).ok());
    EXPECT_TRUE(refused(inbox.arrive(Immediate{.sequence = 5}), "counts its writes wrong"));
    EXPECT_TRUE(refused(inbox.arrive(Immediate{.sequence = 255}), "counts its writes wrong"));
  }
  {
    Inbox inbox(signals, 2, 1);
    EXPECT_TRUE(refused(inbox.arrive(Immediate{.index = 2, .increment = 1}), "signal 2"));
    EXPECT_TRUE(refused(inbox.arrive(Note{.index = 1U << 31, .value = 1}), "signal 2147483648"));
    EXPECT_TRUE(refused(inbox.arrive(Note{.sequence = ~std::uint64_t{0}}), "counts"));
  }
  {
    Inbox inbox(signals, 2, 1);
    EXPECT_TRUE(inbox.arrive(Note{.sequence = 0, .index = 1, .value = 7}).ok());
    EXPECT_TRUE(refused(inbox.arrive(Note{.sequence = 1, .index = 1, .value = 6}), "only grow"));
    Inbox other(signals, 2, 1);
    EXPECT_TRUE(other.arrive(Note{.sequence = 0, .index = 1, .value = ~std::uint64_t{0}}).ok());
    EXPECT_TRUE(
        refused(other.arrive(Immediate{.sequence = 1, .index = 1, .increment = 1}), "only grow"));
  }
}

// That the bytes are there and that they were the last ones is told apart, in any order.
TEST(OfiGets, OneIsCompleteWhenItsLastWriteIsKnownAndHasArrived) {
  Gets gets(1);
  const auto first = gets.add({.registration = {}, .key = 5, .address = 6}, {.key = 7}, 8, 9, 0);
  EXPECT_EQ(first.sequence, 0u);
  EXPECT_EQ(first.value, 7u);
  EXPECT_EQ(first.offset, 8u);
  EXPECT_EQ(first.bytes, 9u);
  EXPECT_EQ(first.to_key, 5u);
  EXPECT_EQ(first.to_address, 6u);
  gets.add_empty();
  EXPECT_EQ(gets.add({}, {.key = 7}, 0, 1, 0).sequence, 1u);
  EXPECT_EQ(gets.started(), 3u);
  gets.arrived(4);
  EXPECT_EQ(gets.completed(), 0u);
  EXPECT_TRUE(gets.answered({.sequence = 4, .value = 1, .bytes = 1}).ok());
  gets.arrived(4);
  EXPECT_EQ(gets.completed(), 0u);
  EXPECT_TRUE(gets.answered({.sequence = 3, .value = 0, .bytes = 9}).ok());
  gets.arrived(2);
  EXPECT_EQ(gets.completed(), 0u);
  gets.arrived(3);
  EXPECT_EQ(gets.completed(), 2u);
  EXPECT_TRUE(gets.are_due());
  gets.arrived(4);
  EXPECT_EQ(gets.completed(), 3u);
  EXPECT_FALSE(gets.are_due());
}

TEST(OfiGets, AnswersToNoGetOrTwiceAreViolations) {
  for (const Note& wrong :
       {Note{.sequence = 9, .value = 0, .bytes = 1}, Note{.sequence = 9, .value = 1, .bytes = 1},
        Note{.sequence = 9, .value = 3, .bytes = 1}, Note{.sequence = 0, .value = 2, .bytes = 1},
        Note{.sequence = 9, .value = ~std::uint64_t{0}, .bytes = 1}}) {
    Gets gets(1);
    for (int i = 0; i < 3; ++i) gets.add({}, {.key = 7}, 0, 1, 0);
    EXPECT_TRUE(gets.answered({.sequence = 1, .value = 0, .bytes = 1}).ok());
    EXPECT_TRUE(gets.answered({.sequence = 2, .value = 1, .bytes = 1}).ok());
    gets.arrived(1);
    const Status status = gets.answered(wrong);
    ASSERT_FALSE(status.ok()) << wrong.value;
    EXPECT_EQ(status.error().peer, 1);
    EXPECT_EQ(gets.completed(), 1u);
  }
}

// Five writes had arrived before this get, and its bytes do not fit into two.
TEST(OfiGets, AnAnswerOfTooFewBytesOrWritesIsAViolation) {
  constexpr std::uint64_t bytes = 2 * transport::ofi::piece_bytes + 1;
  const auto answered = [](const Note& note) {
    Gets gets(1);
    gets.arrived(5);
    gets.add({}, {.key = 7}, 0, bytes, 5);
    Status status = gets.answered(note);
    gets.arrived(note.sequence);
    EXPECT_EQ(gets.completed(), status.ok() ? 1u : 0u);
    return status;
  };
  EXPECT_TRUE(answered({.sequence = 8, .bytes = bytes}).ok());
  EXPECT_TRUE(answered({.sequence = 40, .bytes = bytes}).ok()) << "of more and smaller writes";
  for (const Note& wrong :
       {Note{.sequence = 8, .bytes = bytes - 1}, Note{.sequence = 8, .bytes = bytes + 1},
        Note{.sequence = 8}, Note{.sequence = 7, .bytes = bytes},
        Note{.sequence = 5, .bytes = bytes}, Note{.sequence = 1, .bytes = bytes}}) {
    const Status status = answered(wrong);
    ASSERT_FALSE(status.ok()) << wrong.sequence << " " << wrong.bytes;
    EXPECT_EQ(status.error().peer, 1);
  }
}

TEST(OfiOutbox, AnswersGoInPlaceAndLeaveRoomForPuts) {
  constexpr std::size_t most_write_bytes = 100;
  Outbox outbox(1);
  const std::vector<std::byte> source(250);
  for (std::size_t i = 0; i < Gets::most; ++i) {
    const Note told = outbox.answer(
        {.sequence = i, .value = 30 + i % 2, .bytes = 250, .to_key = 4, .to_address = 1000},
        source.data(), most_write_bytes);
    EXPECT_EQ(told.value, i);
    EXPECT_EQ(told.sequence, 3 * (i + 1));
    EXPECT_EQ(told.bytes, source.size());
  }
  EXPECT_TRUE(outbox.add(source.data(), 1, 0, {}));
  EXPECT_EQ(outbox.started(), 1u);
  EXPECT_EQ(outbox.completed(), 0u);
  EXPECT_EQ(outbox.unposted_answers(30), Gets::most / 2);
  std::size_t bytes = 0;
  for (int write = 0; write < 3; ++write) {
    Outbox::Next next;
    ASSERT_TRUE(outbox.next({}, {}, most_write_bytes, next));
    EXPECT_EQ(next.write.key, 4u);
    EXPECT_EQ(next.write.address, 1000 + bytes);
    EXPECT_TRUE(Immediate::unpack(next.write.immediate).is_in_place);
    bytes += next.write.bytes;
    outbox.posted(next);
    EXPECT_EQ(outbox.outstanding_of_answers(30), 1u);
    EXPECT_EQ(outbox.outstanding_of_answers(31), 0u);
    Outbox::Next other;
    EXPECT_FALSE(outbox.next({}, {}, most_write_bytes, other)) << "one is under way at a time";
    outbox.completed_write(next.put);
  }
  EXPECT_EQ(bytes, source.size());
  EXPECT_EQ(outbox.unposted_answers(30), Gets::most / 2 - 1);
  EXPECT_EQ(outbox.unposted_answers(0), Gets::most - 1);
  outbox.drop();
  EXPECT_EQ(outbox.unposted_answers(0), 0u);
  EXPECT_EQ(outbox.completed(), 1u);
}

// Fewer than a wire that reorders them may mix up.
TEST(OfiOutbox, NoMoreWritesAreUnderWayThanTheReceiverTellsApart) {
  constexpr std::size_t most_write_bytes = 100;
  Outbox outbox(1);
  const std::vector<std::byte> source(2 * Inbox::window * most_write_bytes);
  ASSERT_TRUE(outbox.add(source.data(), source.size(), 0, {}));
  Outbox::Next next;
  while (outbox.next({}, {}, most_write_bytes, next)) outbox.posted(next);
  EXPECT_GT(outbox.outstanding(), 0u);
  EXPECT_LT(outbox.outstanding(), Inbox::window);
}

TEST(OfiMessage, ComesBackAsItWasSentAndNoOtherIsRead) {
  const Key key = derive_key(as_bytes_of("secret"), "test");
  const Key other = derive_key(as_bytes_of("guess"), "test");
  for (int type = 1; type <= static_cast<int>(MessageType::ping); ++type) {
    Message sent;
    sent.type = static_cast<MessageType>(type);
    sent.meeting = {.key = {.communicator = 7, .epoch = 2, .channel = 3}, .from = 1, .to = 4};
    sent.facts = {.geometry = {.region_bytes = 99, .signals = 5, .layout = 6}, .number = 17};
    sent.note = {.number = 17,
                 .ticket = 18,
                 .sequence = 19,
                 .index = 20,
                 .value = 21,
                 .offset = 22,
                 .bytes = 23,
                 .to_key = 24,
                 .to_address = 25};
    const auto bytes = encode(sent, key);
    ASSERT_LE(bytes.size(), transport::ofi::most_message_bytes);
    const auto got = transport::ofi::decode(bytes);
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(got->type, sent.type);
    if (got->note.number != 0) {
      EXPECT_EQ(got->note.offset, sent.note.offset);
      EXPECT_EQ(got->note.bytes, sent.note.bytes);
      EXPECT_EQ(got->note.to_key, sent.note.to_key);
      EXPECT_EQ(got->note.to_address, sent.note.to_address);
    }
    const bool has_proof = sent.type == MessageType::answer || sent.type == MessageType::join;
    EXPECT_EQ(transport::ofi::is_proved(bytes, key), has_proof);
    EXPECT_FALSE(transport::ofi::is_proved(bytes, other));
    for (std::size_t part = 0; part < bytes.size(); ++part)
      EXPECT_FALSE(transport::ofi::decode(std::span(bytes).first(part)).has_value());
    if (has_proof)
      for (std::size_t at = 0; at < bytes.size(); ++at) {
        auto changed = bytes;
        changed[at] ^= std::byte{1};
        EXPECT_FALSE(transport::ofi::is_proved(changed, key)) << at;
      }
  }
}

TEST(OfiMessage, AnImmediateIsOneWord) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 1000; ++i) {
    const auto word = static_cast<std::uint32_t>(random());
    EXPECT_EQ(Immediate::unpack(word).pack(), word);
  }
}

}  // namespace
}  // namespace unisono

#endif
