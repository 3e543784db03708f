// Immediates, messages and gets of the transport over libfabric: the order in which signals are
// seen, what counts as complete, and what a peer cannot say. It needs no library.

#if __has_include(<rdma/fabric.h>)

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <random>
#include <utility>

#include "base/key.h"
#include "base/wire.h"
#include "transport/ofi/gets.h"
#include "transport/ofi/in_place_window.h"
#include "transport/ofi/inbox.h"
#include "transport/ofi/message.h"
#include "transport/ofi/outbox.h"
#include "transport/ofi/ring.h"

namespace unisono {
namespace {

using transport::ofi::Gets;
using transport::ofi::Immediate;
using transport::ofi::Inbox;
using transport::ofi::InPlaceWindow;
using transport::ofi::Message;
using transport::ofi::MessageType;
using transport::ofi::Note;
using transport::ofi::Outbox;
using transport::ofi::Ring;

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
    EXPECT_TRUE(Immediate::unpack(next.announcement.immediate).is_in_place);
    bytes += next.write.bytes;
    outbox.posted(next, false);
    EXPECT_EQ(outbox.outstanding_of_answers(30), 1u);
    EXPECT_EQ(outbox.outstanding_of_answers(31), 0u);
    outbox.completed_write(next.put, next.write.bytes);
  }
  EXPECT_EQ(bytes, source.size());
  EXPECT_EQ(outbox.unposted_answers(30), Gets::most / 2 - 1);
  EXPECT_EQ(outbox.unposted_answers(0), Gets::most - 1);
  outbox.drop();
  EXPECT_EQ(outbox.unposted_answers(0), 0u);
  EXPECT_EQ(outbox.completed(), 1u);
}

// Those that have left are not those that have arrived: their sources are free before.
TEST(OfiOutbox, NoMoreWritesAreUnderWayThanTheReceiverTellsApart) {
  constexpr std::size_t most_write_bytes = 100;
  Outbox outbox(1);
  const std::vector<std::byte> source(3 * Inbox::window * most_write_bytes);
  ASSERT_TRUE(outbox.add(source.data(), source.size(), 0, {}));
  Outbox::Next next;
  const auto post_all = [&] {
    while (outbox.next({}, {}, most_write_bytes, next)) {
      outbox.posted(next, false);
      outbox.completed_write(next.put, next.write.bytes);
    }
    return outbox.sequence();
  };
  EXPECT_EQ(post_all(), Inbox::window);
  EXPECT_EQ(outbox.outstanding(), 0u);
  EXPECT_TRUE(outbox.arrived(10));
  EXPECT_EQ(post_all(), Inbox::window + 10);
  // What is told may be told late.
  EXPECT_TRUE(outbox.arrived(5));
  EXPECT_EQ(post_all(), Inbox::window + 10);
  EXPECT_FALSE(outbox.arrived(Inbox::window + 11)) << "more than were sent";
  EXPECT_EQ(post_all(), Inbox::window + 10);
}

// Nobody may look at an end whose puts are complete, and its peer waits for their signals.
TEST(OfiOutbox, APutIsCompleteWhenWhatTellsOfItHasLeft) {
  const std::vector<std::byte> source(100);
  for (const bool has_value : {false, true}) {
    Outbox outbox(1);
    ASSERT_TRUE(outbox.add(source.data(), source.size(), 0, {0, has_value ? 1'000'000u : 1u}));
    Outbox::Next next;
    ASSERT_TRUE(outbox.next({}, {}, source.size(), next));
    outbox.posted(next, !has_value);
    const std::uint64_t put = next.put;
    EXPECT_EQ(outbox.outstanding_with_bytes(), 1u);
    outbox.completed_write(put, next.write.bytes);
    EXPECT_EQ(outbox.outstanding_with_bytes(), 0u) << "its source is free";
    if (has_value) {
      ASSERT_TRUE(outbox.next({}, {}, source.size(), next));
      ASSERT_TRUE(next.has_value);
      outbox.posted(next, false);
    }
    EXPECT_EQ(outbox.completed(), 0u);
    EXPECT_EQ(outbox.outstanding(), 1u);
    outbox.drop();
    EXPECT_EQ(outbox.completed(), 0u) << "it has begun";
    outbox.completed_announcement(put);
    EXPECT_EQ(outbox.completed(), 1u);
    EXPECT_EQ(outbox.outstanding(), 0u);
  }
}

// Values travel as messages, and no completion counts them.
TEST(OfiOutbox, ValuesCountAsWritesThatAreUnderWay) {
  constexpr int signals = static_cast<int>(Inbox::window) + 20;
  Outbox outbox(signals);
  for (int i = 0; i < signals; ++i) ASSERT_TRUE(outbox.add(nullptr, 0, 0, {i, 1'000'000}));
  Outbox::Next next;
  while (outbox.next({}, {}, 100, next)) {
    ASSERT_TRUE(next.has_value);
    outbox.posted(next, false);
  }
  EXPECT_EQ(outbox.sequence(), Inbox::window);
  EXPECT_TRUE(outbox.arrived(1));
  EXPECT_TRUE(outbox.next({}, {}, 100, next));
}

// A link takes bytes one after another, and tells of each piece a while after the last of its
// bytes.
struct Link {
  double bytes_per_ns;
  std::int64_t latency_ns;
  std::size_t piece;
  // The share of the link's rate, and how long the bytes under way take, at most, once its rate is
  // known.
  std::pair<double, double> run(int pieces) const {
    InPlaceWindow window;
    std::deque<std::int64_t> completions;
    double free_ns = 0;
    std::int64_t now = 0, begin_ns = 0;
    double most_ns = 0;
    const int warm = pieces / 2;
    for (int posted = 0, done = 0; done < pieces;) {
      while (posted < pieces && window.has_room(piece)) {
        window.posted(piece, now);
        ++posted;
        free_ns =
            std::max(free_ns, static_cast<double>(now)) + static_cast<double>(piece) / bytes_per_ns;
        completions.push_back(static_cast<std::int64_t>(free_ns) + latency_ns);
        if (done >= warm)
          most_ns =
              std::max(most_ns, static_cast<double>(completions.size() * piece) / bytes_per_ns);
      }
      now = completions.front();
      completions.pop_front();
      window.completed(piece, now);
      if (++done == warm) begin_ns = now;
    }
    EXPECT_FALSE(window.is_under_way());
    const auto bytes = static_cast<double>(piece) * (pieces - warm);
    return {bytes / bytes_per_ns / static_cast<double>(now - begin_ns), most_ns};
  }
};

TEST(OfiInPlace, AFastLinkIsFullAndNoneIsHeldUpForLong) {
  constexpr std::size_t piece = transport::ofi::piece_bytes;
  const auto drain_ns = static_cast<double>(InPlaceWindow::drain_ns);
  // 400 and 200 Gbit/s, with a round trip of 10 us. One at a time are 0.68 and 0.81.
  for (const double bytes_per_ns : {50.0, 25.0}) {
    const auto [share, most_ns] = Link{bytes_per_ns, 10'000, piece}.run(200);
    EXPECT_GT(share, 0.99) << bytes_per_ns;
    EXPECT_LE(most_ns, drain_ns);
  }
  // Small writes, too, of which one at a time uses 0.03 of the link.
  const auto [share, most_ns] = Link{12.5, 10'000, 4096}.run(20'000);
  EXPECT_GT(share, 0.99);
  EXPECT_LE(most_ns, drain_ns);
  // 200 Mbit/s: a piece takes 42 ms, and one is under way at a time.
  EXPECT_EQ((Link{0.025, 1'000, piece}.run(20).second), piece / 0.025);
}

TEST(OfiRing, AWordIsReadOnceItIsWholeAndOnlyAsItsOwn) {
  constexpr std::size_t region_bytes = 99;
  std::vector<std::uint64_t> words((Ring::offset(region_bytes) + Ring::bytes) / 8);
  auto* const region = reinterpret_cast<std::byte*>(words.data());
  EXPECT_GE(Ring::offset(region_bytes), region_bytes);
  // Around the place, and around the half of the word that has the count.
  for (const std::uint64_t begin : {std::uint64_t{0}, (std::uint64_t{1} << 32) - 3 * Inbox::window})
    for (std::uint64_t sequence = begin; sequence < begin + 6 * Inbox::window; ++sequence) {
      const auto immediate = static_cast<std::uint32_t>(sequence * 2654435761U);
      const std::uint64_t word = Ring::word(sequence, immediate);
      std::byte* const place = region + Ring::offset(region_bytes, sequence);
      // A stream may bring it byte by byte. What does not change has always been there.
      for (std::size_t bytes = 0; bytes < sizeof word; ++bytes) {
        std::memcpy(place, &word, bytes);
        if (std::memcmp(place, &word, sizeof word) == 0) continue;
        ASSERT_FALSE(Ring::look(region, region_bytes, sequence).has_value()) << sequence;
      }
      std::memcpy(place, &word, sizeof word);
      ASSERT_EQ(Ring::look(region, region_bytes, sequence), immediate);
      ASSERT_FALSE(Ring::look(region, region_bytes, sequence + 1).has_value());
      ASSERT_FALSE(Ring::look(region, region_bytes, sequence + Inbox::window).has_value());
    }
}

TEST(OfiMessage, ComesBackAsItWasSentAndNoOtherIsRead) {
  const Key key = derive_key(as_bytes_of("secret"), "test");
  const Key other = derive_key(as_bytes_of("guess"), "test");
  for (int type = 1; type <= static_cast<int>(MessageType::arrived); ++type) {
    Message sent;
    sent.type = static_cast<MessageType>(type);
    sent.meeting = {.key = {.communicator = 7, .epoch = 2, .channel = 3}, .from = 1, .to = 4};
    sent.facts = {.geometry = {.region_bytes = 99, .signals = 5, .layout = 6}, .number = 17};
    sent.note = {.number = 17,
                 .ticket = 18,
                 .arrived = 26,
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
      EXPECT_EQ(got->note.arrived, sent.note.arrived);
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
