// The provider of tests/fabric treats transfers as badly as it says.

#if __has_include(<rdma/fabric.h>)

#include "transport/fabric_side.h"

namespace unisono::test {
namespace {

using DemandingTransfers = DemandingProvider;

// Memory of `b` that `a` writes to.
struct Target {
  explicit Target(FabricPair& of, std::size_t bytes)
      : pair(of), memory(bytes), key(fi_mr_key(of.b.must_register(memory, FI_REMOTE_WRITE, 9))) {}
  ssize_t write(std::span<const std::byte> source, std::uint64_t data, void* context,
                std::uint64_t flags = 0) {
    const iovec from{.iov_base = const_cast<std::byte*>(source.data()), .iov_len = source.size()};
    const fi_rma_iov to{.addr = 0, .len = source.size(), .key = key};
    const fi_msg_rma message{.msg_iov = &from,
                             .desc = nullptr,
                             .iov_count = 1,
                             .addr = pair.from_a,
                             .rma_iov = &to,
                             .rma_iov_count = 1,
                             .context = context,
                             .data = data};
    return fi_writemsg(pair.a.endpoint(), &message, FI_COMPLETION | FI_REMOTE_CQ_DATA | flags);
  }

  FabricPair& pair;
  std::vector<std::byte> memory;
  std::uint64_t key;
};

// Their data come in any order, and each behind all bytes of its own write.
TEST_F(DemandingTransfers, WritesArriveInAnyOrder) {
  FabricPair pair("unordered");
  constexpr std::size_t count = 32;
  constexpr std::size_t bytes = 1000;
  std::vector<std::byte> memory(count * bytes);
  const std::uint64_t key = fi_mr_key(pair.b.must_register(memory, FI_REMOTE_WRITE, 9));
  bool is_reordered = false;
  for (int round = 1; round <= 20; ++round) {
    const std::vector<std::byte> source(bytes, static_cast<std::byte>(round));
    for (std::uint64_t i = 0; i < count; ++i)
      ASSERT_EQ(fi_writedata(pair.a.endpoint(), source.data(), bytes, nullptr, i, pair.from_a,
                             i * bytes, key, nullptr),
                0);
    for (std::uint64_t i = 0; i < count; ++i) {
      const Completion arrived = pair.next_of(pair.b);
      ASSERT_EQ(arrived.error, 0);
      ASSERT_LT(arrived.data, count);
      is_reordered |= arrived.data != i;
      EXPECT_TRUE(equal_bytes(memory.data() + arrived.data * bytes, source.data(), bytes));
    }
    for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(pair.next_of(pair.a).error, 0);
  }
  EXPECT_TRUE(is_reordered);
}

// Some bytes of a later write are there before the earlier one has arrived.
TEST_F(DemandingTransfers, PiecesOfWritesAreMixed) {
  FabricPair pair("unordered");
  constexpr std::size_t bytes = 1000;
  std::vector<std::byte> memory(2 * bytes);
  const std::uint64_t key = fi_mr_key(pair.b.must_register(memory, FI_REMOTE_WRITE, 9));
  unsigned round = 0;
  EXPECT_TRUE(eventually([&] {
    const std::vector<std::byte> source(bytes, static_cast<std::byte>(++round));
    for (std::uint64_t i = 0; i < 2; ++i)
      EXPECT_EQ(fi_writedata(pair.a.endpoint(), source.data(), bytes, nullptr, i, pair.from_a,
                             i * bytes, key, nullptr),
                0);
    const std::uint64_t first = pair.next_of(pair.b).data;
    const std::byte* other = memory.data() + (1 - first) * bytes;
    const auto have = std::count(other, other + bytes, static_cast<std::byte>(round));
    EXPECT_EQ(pair.next_of(pair.b).data, 1 - first);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(pair.next_of(pair.a).error, 0);
    return have > 0 && have < static_cast<std::ptrdiff_t>(bytes);
  }));
}

TEST_F(DemandingTransfers, AWriteThatIsCompleteMayNotHaveLeft) {
  FabricPair pair("late");
  Target target(pair, 8);
  std::uint64_t round = 0;
  EXPECT_TRUE(eventually([&] {
    ++round;
    std::vector<std::byte> source(8);
    std::memcpy(source.data(), &round, sizeof round);
    EXPECT_EQ(target.write(source, 1, &round), 0);
    EXPECT_EQ(pair.next_of(pair.a).context, &round);
    // The source is the caller's again.
    std::ranges::fill(source, std::byte{0xff});
    // Where it is on its way, the peer's look brings it.
    const bool is_there = pair.b.look().has_value();
    if (!is_there) {
      EXPECT_EQ(pair.next_of(pair.b).data, 1u);
    }
    EXPECT_TRUE(equal_bytes(target.memory.data(), &round, sizeof round));
    return !is_there;
  }));
}

TEST_F(DemandingTransfers, OneThatWaitsForItsDeliveryIsThereWhenItCompletes) {
  for (const char* demands : {"late", "unordered", "late+unordered"}) {
    FabricPair pair(demands);
    Target target(pair, 100);
    for (int round = 1; round <= 100; ++round) {
      const std::vector<std::byte> source(100, static_cast<std::byte>(round));
      ASSERT_EQ(target.write(source, 1, &round, FI_DELIVERY_COMPLETE), 0);
      ASSERT_EQ(pair.next_of(pair.a).context, &round);
      ASSERT_EQ(target.memory, source);
      ASSERT_EQ(pair.next_of(pair.b).data, 1u);
    }
  }
}

// A closing endpoint sends what it has said is complete.
TEST_F(DemandingTransfers, LateWritesArriveAlthoughTheirEndpointCloses) {
  FabricSide b("late");
  std::vector<std::byte> memory(8);
  const std::uint64_t key = fi_mr_key(b.must_register(memory, FI_REMOTE_WRITE));
  const std::vector<std::byte> source(8, std::byte{5});
  {
    FabricPair pair("late");
    const fi_addr_t to = pair.a.insert(b);
    ASSERT_TRUE(eventually([&] {
      b.look();
      return fi_send(pair.a.endpoint(), source.data(), 0, nullptr, to, nullptr) == 0;
    }));
    ASSERT_EQ(fi_writedata(pair.a.endpoint(), source.data(), 8, nullptr, 1, to, 0, key, nullptr),
              0);
  }
  ASSERT_TRUE(eventually([&] {
    b.look();
    return memory == source;
  }));
}

TEST_F(DemandingTransfers, PostsAreRefusedForAWhile) {
  for (const char* demands : {"busy", "full", ""}) {
    FabricPair pair(demands);
    Target target(pair, 8);
    const std::vector<std::byte> source(8);
    std::array<std::byte, 8> received{};
    int context = 0;
    const auto refusals = [&](auto post) {
      int count = 0;
      EXPECT_TRUE(pair.posted([&] {
        const ssize_t code = post();
        count += code == -FI_EAGAIN ? 1 : 0;
        return code;
      }));
      return count;
    };
    int of_writes = 0;
    int of_messages = 0;
    int of_receives = 0;
    for (int round = 0; round < 100; ++round) {
      of_writes += refusals([&] { return target.write(source, 1, &context); });
      EXPECT_EQ(pair.next_of(pair.b).data, 1u);
      EXPECT_EQ(pair.next_of(pair.a).error, 0);
      of_receives += refusals([&] {
        return fi_recv(pair.b.endpoint(), received.data(), 8, nullptr, FI_ADDR_UNSPEC, &context);
      });
      of_messages += refusals([&] {
        return fi_send(pair.a.endpoint(), source.data(), 8, nullptr, pair.from_a, &context);
      });
      EXPECT_EQ(pair.next_of(pair.b).context, &context);
      EXPECT_EQ(pair.next_of(pair.a).error, 0);
    }
    EXPECT_EQ(of_writes > 0, std::string(demands) == "busy") << of_writes;
    EXPECT_EQ(of_messages > 0, std::string(demands) == "busy") << of_messages;
    EXPECT_EQ(of_receives > 0, std::string(demands) == "full") << of_receives;
  }
}

TEST_F(DemandingTransfers, ErrorsOfWritesMayNotSayWhose) {
  for (const bool is_anonymous : {false, true}) {
    for (const std::string more : {"", "+unordered"}) {
      FabricPair pair((is_anonymous ? "anonymous" : "seed=2") + more);
      Target target(pair, 8);
      const std::vector<std::byte> source(8);
      int context = 0;
      ++target.key;
      const Completion failed = pair.failure_of([&] { return target.write(source, 1, &context); });
      EXPECT_EQ(failed.context, is_anonymous ? nullptr : &context);
    }
  }
}

TEST_F(DemandingTransfers, CompletionDataAreRefusedOrLost) {
  const std::vector<std::byte> source(8, std::byte{4});
  struct Row {
    const char* demands;
    std::size_t data_bytes;
    ssize_t by_message;
    ssize_t by_data;
    ssize_t by_injection;
  };
  for (const Row& row :
       {Row{"no_message_data", 4, -FI_EBADFLAGS, 0, 0},
        Row{"refused_data", 4, -FI_EBADFLAGS, -FI_ENOSYS, -FI_ENOSYS},
        Row{"no_data", 0, -FI_EBADFLAGS, -FI_EBADFLAGS, -FI_EBADFLAGS}, Row{"", 4, 0, 0, 0}}) {
    FabricPair pair(row.demands, row.data_bytes);
    Target target(pair, 8);
    EXPECT_EQ(target.write(source, 1, nullptr), row.by_message) << row.demands;
    EXPECT_EQ(fi_writedata(pair.a.endpoint(), source.data(), 8, nullptr, 1, pair.from_a, 0,
                           target.key, nullptr),
              row.by_data)
        << row.demands;
    EXPECT_EQ(
        fi_inject_writedata(pair.a.endpoint(), source.data(), 8, 1, pair.from_a, 0, target.key),
        row.by_injection)
        << row.demands;
    EXPECT_EQ(
        fi_write(pair.a.endpoint(), source.data(), 8, nullptr, pair.from_a, 0, target.key, nullptr),
        0)
        << row.demands;
  }
  FabricPair pair("lost_data");
  Target target(pair, 8);
  ASSERT_EQ(target.write(source, 1, nullptr), 0);
  ASSERT_TRUE(eventually([&] {
    pair.look();
    return target.memory == source;
  }));
  // A message comes behind it, and nothing before that.
  std::array<std::byte, 2> message{};
  ASSERT_EQ(fi_recv(pair.b.endpoint(), message.data(), 1, nullptr, FI_ADDR_UNSPEC, &message), 0);
  ASSERT_EQ(fi_send(pair.a.endpoint(), message.data() + 1, 1, nullptr, pair.from_a, nullptr), 0);
  EXPECT_EQ(pair.next_of(pair.b).context, &message);
}

}  // namespace
}  // namespace unisono::test

#endif
