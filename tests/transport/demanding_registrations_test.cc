// The provider of tests/fabric refuses what it says it refuses: registration modes, keys, sizes.

#if __has_include(<rdma/fabric.h>)

#include "transport/fabric_side.h"

namespace unisono::test {
namespace {

using DemandingRegistrations = DemandingProvider;

TEST_F(DemandingRegistrations, NothingIsOfferedToACallerThatDoesNotKeepTheModes) {
  for (const auto& [demands, mode] :
       {std::pair{"local", FI_MR_LOCAL}, std::pair{"endpoint", FI_MR_ENDPOINT},
        std::pair{"virtual", FI_MR_VIRT_ADDR}, std::pair{"virtual", FI_MR_ALLOCATED},
        std::pair{"virtual", FI_MR_PROV_KEY}}) {
    EXPECT_EQ(offer(demands, all_modes & ~mode), nullptr) << demands;
    const FabricInfo info = offer(demands);
    ASSERT_NE(info, nullptr) << demands;
    EXPECT_EQ(info->fabric_attr->prov_name, demanding(demands));
  }
  EXPECT_EQ(offer("no_data"), nullptr);
  EXPECT_NE(offer("no_data", all_modes, 0), nullptr);
}

TEST_F(DemandingRegistrations, AnOfferHasTheModesThatAreNeededAndNoOthers) {
  EXPECT_EQ(offer("")->domain_attr->mr_mode, 0);
  EXPECT_EQ(offer("local")->domain_attr->mr_mode, FI_MR_LOCAL);
  EXPECT_EQ(offer("endpoint")->domain_attr->mr_mode, FI_MR_ENDPOINT);
  EXPECT_EQ(offer("virtual")->domain_attr->mr_mode,
            FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY);
  EXPECT_EQ(offer("keys=2")->domain_attr->mr_key_size, 2u);
  EXPECT_EQ(offer("writes=65536")->ep_attr->max_msg_size, 65536u);
  constexpr std::uint64_t in_order = FI_ORDER_WAW | FI_ORDER_RMA_WAW;
  EXPECT_NE(offer("")->tx_attr->msg_order & in_order, 0u);
  EXPECT_EQ(offer("unordered")->tx_attr->msg_order & in_order, 0u);
  EXPECT_EQ(offer("unordered")->ep_attr->max_order_waw_size, 0u);
  EXPECT_NE(offer("")->tx_attr->msg_order & FI_ORDER_SAW, 0u);
  EXPECT_EQ(offer("late")->tx_attr->msg_order & FI_ORDER_SAW, 0u);
}

TEST_F(DemandingRegistrations, UnknownDemandsAreNotOffered) {
  for (const char* demands : {"lokal", "local+", "keys=3", "keys=2x", "queue", "virtual+keys=4"})
    EXPECT_EQ(offer(demands), nullptr) << demands;
}

TEST_F(DemandingRegistrations, OnlyWhoNamesItIsOfferedIt) {
  const FabricInfo all = offer(std::nullopt);
  for (const fi_info* each = all.get(); each != nullptr; each = each->next)
    EXPECT_EQ(std::string(each->fabric_attr->prov_name).find("demanding"), std::string::npos);
}

// Every buffer, in all the ways in which its descriptor can be wrong.
TEST_F(DemandingRegistrations, ABufferWithoutItsDescriptorIsRefused) {
  FabricPair pair("local");
  FabricSide stranger("local");
  std::vector<std::byte> memory(64);
  std::vector<std::byte> there(64);
  const std::span<std::byte> half = std::span(memory).first(32);
  fid_mr* target = pair.b.must_register(there, FI_REMOTE_WRITE);
  int context = 0;
  using Post = std::function<ssize_t(void*)>;
  const auto write = [&](void* descriptor) {
    return fi_write(pair.a.endpoint(), memory.data(), 32, descriptor, pair.from_a, 0,
                    fi_mr_key(target), &context);
  };
  const auto write_data = [&](void* descriptor) {
    return fi_writedata(pair.a.endpoint(), memory.data(), 32, descriptor, 1, pair.from_a, 0,
                        fi_mr_key(target), &context);
  };
  const auto write_message = [&](void* descriptor) {
    const iovec from{.iov_base = memory.data(), .iov_len = 32};
    const fi_rma_iov to{.addr = 0, .len = 32, .key = fi_mr_key(target)};
    void* descriptors[] = {descriptor};
    const fi_msg_rma message{.msg_iov = &from,
                             .desc = descriptors,
                             .iov_count = 1,
                             .addr = pair.from_a,
                             .rma_iov = &to,
                             .rma_iov_count = 1,
                             .context = &context,
                             .data = 0};
    return fi_writemsg(pair.a.endpoint(), &message, FI_COMPLETION);
  };
  const auto send = [&](void* descriptor) {
    return fi_send(pair.a.endpoint(), memory.data(), 32, descriptor, pair.from_a, &context);
  };
  const auto receive = [&](void* descriptor) {
    return fi_recv(pair.a.endpoint(), memory.data(), 32, descriptor, FI_ADDR_UNSPEC, &context);
  };
  struct Row {
    Post post;
    std::uint64_t access;
    std::uint64_t other;
  };
  const Row rows[] = {{write, FI_WRITE, FI_SEND | FI_RECV},
                      {write_data, FI_WRITE, FI_SEND | FI_RECV},
                      {write_message, FI_WRITE, FI_SEND | FI_RECV},
                      {send, FI_SEND, FI_WRITE | FI_RECV},
                      {receive, FI_RECV, FI_SEND | FI_WRITE}};
  std::uint64_t key = 10;
  for (const Row& row : rows) {
    EXPECT_EQ(row.post(nullptr), -FI_EINVAL);
    EXPECT_EQ(row.post(&context), -FI_EINVAL);
    fid_mr* short_one = pair.a.must_register(half.first(31), row.access, ++key);
    EXPECT_EQ(row.post(fi_mr_desc(short_one)), -FI_EINVAL);
    fid_mr* behind = pair.a.must_register(std::span(memory).last(63), row.access, ++key);
    EXPECT_EQ(row.post(fi_mr_desc(behind)), -FI_EINVAL);
    fid_mr* of_other_use = pair.a.must_register(half, row.other, ++key);
    EXPECT_EQ(row.post(fi_mr_desc(of_other_use)), -FI_EINVAL);
    fid_mr* of_other_domain = stranger.must_register(half, row.access, ++key);
    EXPECT_EQ(row.post(fi_mr_desc(of_other_domain)), -FI_EINVAL);
    fid_mr* closed = pair.a.must_register(half, row.access, ++key);
    void* const descriptor = fi_mr_desc(closed);
    pair.a.close(closed);
    EXPECT_EQ(row.post(descriptor), -FI_EINVAL);
    fid_mr* right = pair.a.must_register(half, row.access, ++key);
    EXPECT_EQ(row.post(fi_mr_desc(right)), 0);
  }
}

TEST_F(DemandingRegistrations, ARegistrationThatIsClosedWhileItIsUsedFailsItsOperation) {
  FabricPair pair("local");
  std::vector<std::byte> memory(8);
  int context = 0;
  fid_mr* in = pair.b.must_register(memory, FI_RECV, 1);
  fid_mr* out = pair.a.must_register(memory, FI_SEND, 1);
  ASSERT_EQ(fi_recv(pair.b.endpoint(), memory.data(), 8, fi_mr_desc(in), FI_ADDR_UNSPEC, &context),
            0);
  pair.b.close(in);
  ASSERT_EQ(fi_send(pair.a.endpoint(), memory.data(), 8, fi_mr_desc(out), pair.from_a, &context),
            0);
  const Completion failed = pair.next_of(pair.b);
  EXPECT_EQ(failed.error, FI_EINVAL);
  EXPECT_EQ(failed.context, &context);
}

TEST_F(DemandingRegistrations, OneOfAnEndpointWorksOnceItIsBoundAndEnabled) {
  FabricPair pair("endpoint+local");
  std::vector<std::byte> source(8, std::byte{3});
  std::vector<std::byte> there(8);
  int context = 0;
  fid_mr* target = nullptr;
  ASSERT_EQ(pair.b.register_memory(there, FI_REMOTE_WRITE, 5, &target), 0);
  EXPECT_EQ(fi_mr_enable(target), -FI_EINVAL);
  EXPECT_EQ(fi_mr_bind(target, &pair.a.endpoint()->fid, 0), -FI_EINVAL);
  ASSERT_EQ(fi_mr_bind(target, &pair.b.endpoint()->fid, 0), 0);
  EXPECT_EQ(fi_mr_bind(target, &pair.b.endpoint()->fid, 0), -FI_EINVAL);
  ASSERT_EQ(fi_mr_enable(target), 0);
  EXPECT_EQ(fi_mr_enable(target), -FI_EINVAL);

  fid_mr* from = nullptr;
  ASSERT_EQ(pair.a.register_memory(source, FI_WRITE, 5, &from), 0);
  const auto write = [&] {
    return fi_writedata(pair.a.endpoint(), source.data(), 8, fi_mr_desc(from), 7, pair.from_a, 0,
                        fi_mr_key(target), &context);
  };
  EXPECT_EQ(write(), -FI_EINVAL);
  ASSERT_EQ(fi_mr_bind(from, &pair.a.endpoint()->fid, 0), 0);
  EXPECT_EQ(write(), -FI_EINVAL);
  ASSERT_EQ(fi_mr_enable(from), 0);
  EXPECT_EQ(write(), 0);
  EXPECT_EQ(pair.next_of(pair.b).data, 7u);
  EXPECT_EQ(there, source);
}

TEST_F(DemandingRegistrations, APeerCannotWriteWhereNoneIsEnabled) {
  FabricPair pair("endpoint");
  std::vector<std::byte> source(8, std::byte{3});
  std::vector<std::byte> there(8);
  int context = 0;
  fid_mr* target = nullptr;
  ASSERT_EQ(pair.b.register_memory(there, FI_REMOTE_WRITE, 5, &target), 0);
  ASSERT_EQ(fi_mr_bind(target, &pair.b.endpoint()->fid, 0), 0);
  EXPECT_NE(pair.failure_of([&] {
                  return fi_writedata(pair.a.endpoint(), source.data(), 8, nullptr, 7, pair.from_a,
                                      0, 5, &context);
                })
                .error,
            0);
  EXPECT_EQ(there, std::vector<std::byte>(8));
}

TEST_F(DemandingRegistrations, OneOfNoEndpointIsNotBound) {
  FabricSide side("local");
  std::vector<std::byte> memory(8);
  fid_mr* made = side.must_register(memory, FI_WRITE);
  EXPECT_EQ(fi_mr_bind(made, &side.endpoint()->fid, 0), -FI_ENOSYS);
  EXPECT_EQ(fi_mr_enable(made), -FI_ENOSYS);
}

TEST_F(DemandingRegistrations, KeysOfTheCallerAreNarrowAndUsedOnce) {
  for (const auto& [demands, most] :
       {std::pair{"keys=2", 0xffffull}, std::pair{"keys=4", 0xffffffffull}}) {
    FabricSide side(demands);
    std::vector<std::byte> memory(8);
    fid_mr* made = nullptr;
    EXPECT_EQ(side.register_memory(memory, FI_REMOTE_WRITE, most + 1, &made), -FI_EKEYREJECTED);
    ASSERT_EQ(side.register_memory(memory, FI_REMOTE_WRITE, most, &made), 0);
    EXPECT_EQ(fi_mr_key(made), most);
    fid_mr* second = nullptr;
    EXPECT_EQ(side.register_memory(memory, FI_REMOTE_WRITE, most, &second), -FI_ENOKEY);
    side.close(made);
    EXPECT_EQ(side.register_memory(memory, FI_REMOTE_WRITE, most, &second), 0);
  }
}

// By its own keys and virtual addresses; a byte too many fails.
TEST_F(DemandingRegistrations, WritesGoToAddressesOrOffsetsAsTheOfferSays) {
  for (const char* demands : {"virtual", "keys=2", ""}) {
    FabricPair pair(demands);
    std::vector<std::byte> memory(64);
    const std::span<std::byte> there = std::span(memory).subspan(16, 16);
    fid_mr* first = pair.b.must_register(there, FI_REMOTE_WRITE, 1);
    fid_mr* second = pair.b.must_register(there, FI_REMOTE_WRITE, 2);
    EXPECT_NE(fi_mr_key(first), fi_mr_key(second));
    int context = 0;
    std::array<std::byte, 8> source{};
    const auto write = [&](std::byte value, std::size_t offset, fid_mr* to) {
      source.fill(value);
      return fi_writedata(pair.a.endpoint(), source.data(), 8, nullptr, 7, pair.from_a,
                          pair.b.address_of(there) + offset, fi_mr_key(to), &context);
    };
    ASSERT_EQ(write(std::byte{1}, 0, first), 0);
    EXPECT_EQ(pair.next_of(pair.b).data, 7u);
    EXPECT_EQ(pair.next_of(pair.a).error, 0);
    ASSERT_EQ(write(std::byte{2}, 8, second), 0);
    EXPECT_EQ(pair.next_of(pair.b).data, 7u);
    EXPECT_EQ(pair.next_of(pair.a).error, 0);
    for (std::size_t i = 0; i < memory.size(); ++i)
      EXPECT_EQ(memory[i], i < 16 || i >= 32 ? std::byte{0} : std::byte(i < 24 ? 1 : 2)) << i;
    EXPECT_NE(pair.failure_of([&] { return write(std::byte{3}, 9, first); }).error, 0) << demands;
    EXPECT_EQ(memory[32], std::byte{0});
  }
}

TEST_F(DemandingRegistrations, WhatIsTooLongIsRefused) {
  FabricPair pair("messages=16+writes=32");
  std::vector<std::byte> memory(64);
  fid_mr* target = pair.b.must_register(memory, FI_REMOTE_WRITE);
  int context = 0;
  const auto send = [&](std::size_t bytes) {
    return fi_send(pair.a.endpoint(), memory.data(), bytes, nullptr, pair.from_a, &context);
  };
  EXPECT_EQ(send(17), -FI_EMSGSIZE);
  EXPECT_EQ(send(16), 0);
  const auto write = [&](std::size_t bytes) {
    return fi_writedata(pair.a.endpoint(), memory.data(), bytes, nullptr, 1, pair.from_a, 0,
                        fi_mr_key(target), &context);
  };
  EXPECT_EQ(write(33), -FI_EMSGSIZE);
  EXPECT_EQ(write(32), 0);
}

TEST_F(DemandingRegistrations, AQueueIsBoundedAndCanBeOverrun) {
  FabricPair pair("queue=8", 4, 8);
  fid_cq* queue = nullptr;
  EXPECT_EQ(pair.a.open_queue(9, &queue), -FI_EINVAL);
  std::vector<std::byte> memory(8);
  fid_mr* target = pair.b.must_register(memory, FI_REMOTE_WRITE);
  const auto write = [&] {
    int context = 0;
    ASSERT_EQ(fi_writedata(pair.a.endpoint(), memory.data(), 8, nullptr, 7, pair.from_a, 0,
                           fi_mr_key(target), &context),
              0);
    ASSERT_TRUE(eventually([&] { return pair.a.look().has_value(); }));
  };
  // As many as it may hold.
  for (int i = 0; i < 8; ++i) write();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(pair.next_of(pair.b).data, 7u);
  // More come than are taken.
  std::optional<Completion> taken;
  ASSERT_TRUE(eventually([&] {
    for (int i = 0; i < 4; ++i) write();
    taken = pair.b.look();
    return taken && taken->error != 0;
  }));
  EXPECT_EQ(taken->error, FI_EOVERRUN);
  fi_cq_data_entry entry{};
  EXPECT_EQ(fi_cq_read(pair.b.queue(), &entry, 1), -FI_EOVERRUN);
}

// The order in which objects may be closed.
TEST_F(DemandingRegistrations, WhatIsUsedIsNotClosed) {
  FabricSide side("endpoint");
  std::vector<std::byte> memory(8);
  side.must_register(memory, FI_REMOTE_WRITE);
  EXPECT_EQ(fi_close(&side.endpoint()->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&side.domain()->fid), -FI_EBUSY);
}

}  // namespace
}  // namespace unisono::test

#endif
