// Point to point.

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <random>

#include "support/ranks.h"
#include "support/sanitized.h"

namespace unisono {
namespace {

using test::run_ranks;

Message to(int peer, const std::vector<std::uint8_t>& data) {
  return {.is_send = true,
          .send_data = data.data(),
          .count = static_cast<std::int64_t>(data.size()),
          .peer = peer};
}
Message from(int peer, std::vector<std::uint8_t>& data) {
  return {.is_send = false,
          .recv_data = data.data(),
          .count = static_cast<std::int64_t>(data.size()),
          .peer = peer};
}

std::vector<std::uint8_t> pattern(int sender, int receiver, int number, std::size_t bytes) {
  std::mt19937 random(static_cast<unsigned>(sender * 10007 + receiver * 101 + number));
  std::vector<std::uint8_t> data(bytes);
  for (auto& byte : data) byte = static_cast<std::uint8_t>(random());
  return data;
}

TEST(Messages, BlockingSendAndReceiveOfAllSizes) {
  for (int nodes : {1, 2})
    run_ranks({.ranks = 2, .nodes = nodes}, [&](Communicator& communicator) {
      int number = 0;
      for (std::size_t bytes :
           {std::size_t{0}, std::size_t{1}, std::size_t{4097}, std::size_t{524288},
            std::size_t{524289}, std::size_t{test::is_sanitized ? 600'001 : 3'000'001}}) {
        ++number;
        const auto sent = pattern(0, 1, number, bytes);
        if (communicator.rank() == 0) {
          const Status status =
              communicator.send(sent.data(), static_cast<std::int64_t>(bytes), DataType::uint8, 1);
          ASSERT_TRUE(status.ok()) << status.error().describe();
        } else {
          std::vector<std::uint8_t> got(bytes, 0xa5);
          const Status status =
              communicator.recv(got.data(), static_cast<std::int64_t>(bytes), DataType::uint8, 0);
          ASSERT_TRUE(status.ok()) << status.error().describe();
          ASSERT_EQ(got, sent);
        }
      }
    });
}

TEST(Messages, AGroupExchangesWithEverybodyAndItself) {
  constexpr int ranks = 4;
  run_ranks({.ranks = ranks, .nodes = 2}, [&](Communicator& communicator) {
    const int rank = communicator.rank();
    std::vector<std::vector<std::uint8_t>> sent, got;
    for (int peer = 0; peer < ranks; ++peer) {
      sent.push_back(pattern(rank, peer, 0, 1000 + static_cast<std::size_t>(rank * 7 + peer)));
      got.emplace_back(1000 + static_cast<std::size_t>(peer * 7 + rank), 0xa5);
    }
    std::vector<Message> messages;
    for (int peer = 0; peer < ranks; ++peer) {
      messages.push_back(to(peer, sent[static_cast<std::size_t>(peer)]));
      messages.push_back(from(peer, got[static_cast<std::size_t>(peer)]));
    }
    auto work = communicator.submit(messages);
    ASSERT_TRUE(work.ok()) << work.error().describe();
    const Status status = work->wait();
    ASSERT_TRUE(status.ok()) << status.error().describe();
    for (int peer = 0; peer < ranks; ++peer)
      ASSERT_EQ(got[static_cast<std::size_t>(peer)],
                pattern(peer, rank, 0, 1000 + static_cast<std::size_t>(peer * 7 + rank)));
  });
}

// The sender groups two large messages; the receiver takes them in two calls.
TEST(Messages, MatchInOrderWhateverTheGroups) {
  run_ranks({.ranks = 2}, [&](Communicator& communicator) {
    const auto first = pattern(0, 1, 1, 1'200'000), second = pattern(0, 1, 2, 900'001);
    if (communicator.rank() == 0) {
      const std::vector<Message> both{to(1, first), to(1, second)};
      auto work = communicator.submit(both);
      ASSERT_TRUE(work.ok());
      ASSERT_TRUE(work->wait().ok());
    } else {
      std::vector<std::uint8_t> a(first.size()), b(second.size());
      const std::vector<Message> one{from(0, a)}, two{from(0, b)};
      auto work_a = communicator.submit(one);
      auto work_b = communicator.submit(two);
      ASSERT_TRUE(work_a.ok() && work_b.ok());
      ASSERT_TRUE(work_b->wait().ok());
      ASSERT_TRUE(work_a->wait().ok());
      EXPECT_EQ(a, first);
      EXPECT_EQ(b, second);
    }
  });
}

TEST(Messages, RunBesideACollectiveThatWaitsForThem) {
  run_ranks({.ranks = 2}, [&](Communicator& communicator) {
    std::vector<std::uint8_t> data = pattern(0, 1, 3, 2'000'000), got(data.size());
    if (communicator.rank() == 0) {
      auto send = communicator.submit(std::vector<Message>{to(1, data)});
      ASSERT_TRUE(send.ok());
      ASSERT_TRUE(communicator.barrier().ok());
      ASSERT_TRUE(send->wait().ok());
    } else {
      // Only after the barrier: the send must not stand in its way.
      ASSERT_TRUE(communicator.barrier().ok());
      auto recv = communicator.submit(std::vector<Message>{from(0, got)});
      ASSERT_TRUE(recv.ok());
      ASSERT_TRUE(recv->wait().ok());
      EXPECT_EQ(got, data);
    }
  });
}

TEST(Messages, AMismatchOfSizesNamesBoth) {
  run_ranks({.ranks = 2}, [&](Communicator& communicator) {
    std::vector<std::uint8_t> data(100);
    const Status status = communicator.rank() == 0
                              ? communicator.send(data.data(), 100, DataType::uint8, 1)
                              : communicator.recv(data.data(), 60, DataType::uint8, 0);
    if (communicator.rank() == 1) {
      ASSERT_FALSE(status.ok());
      EXPECT_NE(status.error().message.find("100"), std::string::npos) << status.error().message;
      EXPECT_NE(status.error().message.find("60"), std::string::npos) << status.error().message;
    }
  });
}

TEST(Messages, OfDifferentTagsOvertakeEachOther) {
  for (int nodes : {1, 2})
    run_ranks({.ranks = 2, .nodes = nodes}, [&](Communicator& communicator) {
      const auto first = pattern(0, 1, 1, 5000), second = pattern(0, 1, 2, 700'001);
      std::vector<std::uint8_t> got(second.size(), 0xa5);
      if (communicator.rank() == 0) {
        Message small = to(1, first), large = to(1, second);
        small.tag = 3;
        large.tag = max_tag;
        auto one = communicator.submit(std::span(&small, 1));
        auto two = communicator.submit(std::span(&large, 1));
        ASSERT_TRUE(one.ok() && two.ok());
        EXPECT_TRUE(one->wait().ok());
        EXPECT_TRUE(two->wait().ok());
        return;
      }
      Message large = from(0, got);
      large.tag = max_tag;
      EXPECT_TRUE(communicator.submit(std::span(&large, 1))->wait().ok());
      EXPECT_EQ(got, second);
      got.assign(first.size(), 0xa5);
      Message small = from(0, got);
      small.tag = 3;
      EXPECT_TRUE(communicator.submit(std::span(&small, 1))->wait().ok());
      EXPECT_EQ(got, first);
    });
}

TEST(Messages, AReceiveFromAnySourceSaysWhoSent) {
  for (int nodes : {1, 3})
    run_ranks({.ranks = 5, .nodes = nodes}, [&](Communicator& communicator) {
      constexpr std::size_t bytes = 600'007;  // more than a slot
      if (communicator.rank() != 2) {
        const auto data = pattern(communicator.rank(), 2, 0, bytes);
        EXPECT_TRUE(communicator.send(data.data(), bytes, DataType::uint8, 2).ok());
        return;
      }
      std::vector<bool> seen(5);
      for (int i = 0; i < 4; ++i) {
        std::vector<std::uint8_t> got(bytes, 0xa5);
        const Message message = from(any_source, got);
        auto work = communicator.submit(std::span(&message, 1));
        ASSERT_TRUE(work.ok());
        ASSERT_TRUE(work->wait().ok());
        const int source = work->source();
        ASSERT_GE(source, 0);
        EXPECT_FALSE(seen[static_cast<std::size_t>(source)]);
        seen[static_cast<std::size_t>(source)] = true;
        EXPECT_EQ(got, pattern(source, 2, 0, bytes));
      }
    });
}

TEST(Messages, AReceiveThatNamesItsPeerKeepsThatPeersMessage) {
  run_ranks({.ranks = 2}, [&](Communicator& communicator) {
    const auto first = pattern(1, 0, 1, 100), second = pattern(1, 0, 2, 100);
    if (communicator.rank() == 1) {
      EXPECT_TRUE(communicator.barrier().ok());
      EXPECT_TRUE(communicator.send(first.data(), 100, DataType::uint8, 0).ok());
      EXPECT_TRUE(communicator.send(second.data(), 100, DataType::uint8, 0).ok());
      return;
    }
    std::vector<std::uint8_t> named(100, 0xa5), anybody(100, 0xa5);
    const Message of_peer = from(1, named), of_any = from(any_source, anybody);
    auto one = communicator.submit(std::span(&of_peer, 1));
    auto two = communicator.submit(std::span(&of_any, 1));
    ASSERT_TRUE(one.ok() && two.ok());
    EXPECT_FALSE(two->done());
    EXPECT_TRUE(communicator.barrier().ok());
    EXPECT_TRUE(two->wait().ok());
    EXPECT_TRUE(one->wait().ok());
    EXPECT_EQ(named, first);
    EXPECT_EQ(anybody, second);
  });
}

TEST(Messages, MisuseIsToldBeforeAnythingStarts) {
  run_ranks({.ranks = 2}, [&](Communicator& communicator) {
    std::uint8_t byte = 0;
    EXPECT_EQ(communicator.send(&byte, 1, DataType::uint8, 2).error().kind, ErrorKind::misuse);
    EXPECT_EQ(communicator.send(&byte, -1, DataType::uint8, 1).error().kind, ErrorKind::misuse);
    EXPECT_EQ(communicator.send(nullptr, 1, DataType::uint8, 1).error().kind, ErrorKind::misuse);
    const auto alone = communicator.send(&byte, 1, DataType::uint8, communicator.rank());
    EXPECT_EQ(alone.error().kind, ErrorKind::misuse);
    std::vector<std::uint8_t> data(3), nothing;
    Message tagged = from(1 - communicator.rank(), data);
    tagged.tag = -1;
    const Message empty = from(any_source, nothing);
    const std::array both{from(any_source, data), from(1 - communicator.rank(), data)};
    const Message to_anybody = to(any_source, data);
    for (const auto messages :
         {std::span<const Message>(&tagged, 1), std::span<const Message>(&empty, 1),
          std::span<const Message>(both), std::span<const Message>(&to_anybody, 1)})
      EXPECT_EQ(communicator.submit(messages).error().kind, ErrorKind::misuse);
    EXPECT_TRUE(communicator.barrier().ok());
  });
}

// Messages that go at once, and those of groups, use one connection: neither overtakes the other.
TEST(Messages, SingleOnesAndGroupsKeepTheirOrder) {
  constexpr int rounds = test::is_sanitized ? 50 : 300;
  constexpr std::int64_t counts[] = {1, 700, 70'001};
  for (const int nodes : {1, 2})
    run_ranks({.ranks = 2, .nodes = nodes}, [&](Communicator& communicator) {
      const int peer = 1 - communicator.rank();
      std::mt19937 random(static_cast<unsigned>(communicator.rank()));
      for (int i = 0; i < rounds; ++i) {
        const bool sends = communicator.rank() == i % 2;
        // Three messages of one round; either end chooses by itself which go in a group.
        std::vector<std::vector<std::int32_t>> data;
        for (int k = 0; k < 3; ++k)
          data.emplace_back(static_cast<std::size_t>(counts[(i + k) % 3]), sends ? 3 * i + k : -1);
        std::vector<Work> works;
        for (auto& one : data) {
          const auto count = static_cast<std::int64_t>(one.size());
          if (random() % 2 == 0) {
            const Message message{.is_send = sends,
                                  .send_data = one.data(),
                                  .recv_data = one.data(),
                                  .count = count,
                                  .type = DataType::int32,
                                  .peer = peer};
            auto work = communicator.submit(std::span(&message, 1));
            ASSERT_TRUE(work.ok()) << work.error().describe();
            works.push_back(std::move(*work));
          } else {
            const Status status = sends
                                      ? communicator.send(one.data(), count, DataType::int32, peer)
                                      : communicator.recv(one.data(), count, DataType::int32, peer);
            ASSERT_TRUE(status.ok()) << status.error().describe();
          }
        }
        for (Work& work : works) ASSERT_TRUE(work.wait().ok());
        for (int k = 0; k < 3; ++k)
          for (std::int32_t element : data[static_cast<std::size_t>(k)])
            ASSERT_EQ(element, 3 * i + k) << "message " << k << " of round " << i;
      }
    });
}

}  // namespace
}  // namespace unisono
