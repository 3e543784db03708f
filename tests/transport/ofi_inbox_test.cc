// Immediates and messages of the transport over libfabric: the order in which signals are seen, and
// what a peer cannot say. It needs no library.

#if __has_include(<rdma/fabric.h>)

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/key.h"
#include "base/wire.h"
#include "transport/ofi/inbox.h"
#include "transport/ofi/message.h"

namespace unisono {
namespace {

using transport::ofi::Immediate;
using transport::ofi::Inbox;
using transport::ofi::Message;
using transport::ofi::MessageType;
using transport::ofi::Note;

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
                 .bytes = 23};
    const auto bytes = encode(sent, key);
    ASSERT_LE(bytes.size(), transport::ofi::most_message_bytes);
    const auto got = transport::ofi::decode(bytes);
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(got->type, sent.type);
    if (got->note.number != 0) {
      EXPECT_EQ(got->note.offset, sent.note.offset);
      EXPECT_EQ(got->note.bytes, sent.note.bytes);
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
