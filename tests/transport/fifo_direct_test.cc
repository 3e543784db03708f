// Messages that go directly to memory which their receiver exposes, over every transport that
// reaches it, and what a receiver refuses of them.

#include <tuple>

#include "conformance/harness.h"
#include "transport/fake_connection.h"
#include "transport/fifo.h"
#include "transport/fifo_layout.h"

namespace unisono::test {
namespace {

using namespace transport;

FifoOptions options_of_test() {
  return {.slots = 4,
          .simple_slot_bytes = 4096,
          .ll_slot_bytes = 4096,
          .ll128_slot_bytes = 4096,
          .zero_copy_min_bytes = 500};
}

using Parameters = std::tuple<Factory, Protocol>;

class DirectFifo : public testing::TestWithParam<Parameters> {
 protected:
  DirectFifo() {
    const auto& [factory, protocol] = GetParam();
    const FifoOptions options = options_of_test();
    job_.emplace(factory, 2);
    pair_.emplace(*job_, fifo_geometry(options));
    send_ = make_send_fifo(*pair_->a, protocol, options);
    recv_ = std::move(*make_recv_fifo(*pair_->b, protocol, options));
  }

  // Progress of both ends until it is so.
  template <class Done>
  testing::AssertionResult until(Done done) {
    const bool came = eventually([&] {
      EXPECT_TRUE(progress_all({pair_->a.get(), pair_->b.get()}).ok());
      Result<bool> now = done();
      EXPECT_TRUE(now.ok()) << now.error().describe();
      return !now.ok() || *now;
    });
    return came ? testing::AssertionSuccess() : testing::AssertionFailure() << "it never came";
  }
  testing::AssertionResult until_destinations_of(std::uint64_t first) {
    return until([&]() -> Result<bool> {
      const DestinationList* list = send_->destinations();
      return list != nullptr && list->first == first;
    });
  }

  std::optional<Job> job_;
  std::optional<Pair> pair_;
  std::unique_ptr<SendFifo> send_;
  std::unique_ptr<RecvFifo> recv_;
};
INSTANTIATE_TEST_SUITE_P(All, DirectFifo,
                         testing::Combine(testing::ValuesIn(factories_inside_a_process()),
                                          testing::Values(Protocol::simple, Protocol::ll128)),
                         [](const testing::TestParamInfo<Parameters>& parameters) {
                           return std::get<0>(parameters.param).name + "_" +
                                  std::string(name(std::get<1>(parameters.param)));
                         });

// Several calls; in each, messages that go directly, in two pieces, and others through their slots.
TEST_P(DirectFifo, EachMessageIsAtItsDestinationOrInItsSlot) {
  if (!recv_->can_expose()) GTEST_SKIP() << "here messages do not go directly";
  constexpr std::size_t bytes = 1000, place = 3 * bytes;
  std::mt19937_64 random(7);
  std::vector<std::byte> memory(10 * bytes);
  for (std::uint64_t call = 0; call < 20; ++call) {
    const std::uint64_t first = recv_->received();
    ASSERT_TRUE(recv_->expose(memory.data(), memory.size(), std::vector{3, -1}).ok());
    ASSERT_TRUE(until_destinations_of(first));
    const DestinationList list = *send_->destinations();
    ASSERT_EQ(list.count, 2u);
    EXPECT_EQ(list.chunks[0], 3);
    EXPECT_EQ(list.chunks[1], -1);
    std::fill(memory.begin(), memory.end(), std::byte{9});
    for (int i = 0; i < 4; ++i) {
      const bool is_direct = i % 2 == 0;
      const auto content = random_bytes(random, bytes);
      ASSERT_TRUE(until([&] { return send_->can_send(); }));
      const std::vector<Piece> pieces{{content.data(), 300}, {content.data() + 300, bytes - 300}};
      ASSERT_TRUE(send_->sends_directly(bytes, pieces.size()));
      const std::vector<std::size_t> offsets{place + 700, place};
      ASSERT_TRUE((is_direct ? send_->send_directly(pieces, offsets) : send_->send(pieces)).ok());
      ASSERT_TRUE(until([&] { return recv_->arrived(bytes); }));
      ASSERT_EQ(recv_->is_direct(), is_direct);
      ASSERT_EQ(recv_->data() == nullptr, is_direct);
      if (is_direct) {
        EXPECT_TRUE(equal_bytes(memory.data() + place + 700, content.data(), 300));
        EXPECT_TRUE(equal_bytes(memory.data() + place, content.data() + 300, bytes - 300));
      } else {
        EXPECT_TRUE(equal_bytes(recv_->data(), content.data(), bytes));
      }
      const std::uint64_t number = recv_->received();
      ASSERT_TRUE(recv_->release().ok());
      // Then the pieces may change.
      ASSERT_TRUE(until([&]() -> Result<bool> { return send_->sources_read() > number; }));
    }
    EXPECT_EQ(std::ranges::count(memory, std::byte{9}) >= std::ssize(memory) - 1100, true);
    recv_->withdraw();
  }
}

TEST_P(DirectFifo, ShortMessagesAndManyPiecesDoNotGoDirectly) {
  if (!recv_->can_expose()) GTEST_SKIP() << "here messages do not go directly";
  EXPECT_FALSE(send_->sends_directly(499, 1));
  EXPECT_TRUE(send_->sends_directly(500, 8));
  EXPECT_FALSE(send_->sends_directly(500, 9));
  EXPECT_FALSE(send_->sends_directly(1 << 20, 1));
}

TEST_P(DirectFifo, AfterWithdrawalNothingLands) {
  if (!recv_->can_expose()) GTEST_SKIP() << "here messages do not go directly";
  std::vector<std::byte> memory(1000), content(1000, std::byte{7});
  ASSERT_TRUE(recv_->expose(memory.data(), memory.size(), std::vector{0}).ok());
  ASSERT_TRUE(until_destinations_of(0));
  recv_->withdraw();
  const Piece piece{content.data(), content.size()};
  const std::size_t offset = 0;
  const Error told = until_error([&]() -> Status {
    auto room = send_->can_send();
    if (!room.ok()) return room.take_error();
    if (*room && send_->sent() == 0)
      if (auto sent = send_->send_directly({&piece, 1}, {&offset, 1}); !sent.ok()) return sent;
    if (auto status = pair_->a->progress(); !status.ok()) return status;
    return pair_->b->progress();
  });
  EXPECT_EQ(told.kind, ErrorKind::peer) << told.describe();
  EXPECT_EQ(std::ranges::count(memory, std::byte{0}), 1000);
}

// A header says that a message of 600 bytes went directly.
struct HostileSender {
  HostileSender() {
    a.join(b);
    b.join(a);
    recv = std::move(*make_recv_fifo(b, Protocol::simple, options));
    const PutHeader header{.number = 1, .bytes = 600 | direct_bit, .call = {}};
    EXPECT_TRUE(a.try_put(&header, sizeof header, layout.slot_offset(0) + put_header_offset,
                          {layout.arrived_signal, 1})
                    .ok());
  }
  const FifoOptions options = options_of_test();
  const FifoLayout layout = put_layout(options);
  FakeConnection a{0, 1, fifo_geometry(options)}, b{1, 0, fifo_geometry(options)};
  std::unique_ptr<RecvFifo> recv;
};

TEST(HostileDirectFifo, AMessageToMemoryThatIsNotExposedIsRefused) {
  HostileSender sender;
  const auto arrived = sender.recv->arrived(600);
  ASSERT_FALSE(arrived.ok());
  EXPECT_EQ(arrived.error().kind, ErrorKind::peer);
  EXPECT_EQ(arrived.error().message,
            "rank 0 sent message 1 directly to memory, and none is exposed to it");
}

TEST(HostileDirectFifo, AMessageThatIsTakenFromItsSlotMustBeThere) {
  HostileSender sender;
  sender.b.expose_to_puts();
  std::vector<std::byte> memory(1000);
  ASSERT_TRUE(sender.recv->expose(memory.data(), memory.size(), std::vector{0}).ok());
  ASSERT_TRUE(*sender.recv->arrived(600));
  const Status copied = sender.recv->copy_to(memory.data(), 0, 600);
  ASSERT_FALSE(copied.ok());
  EXPECT_EQ(copied.error().kind, ErrorKind::peer);
  EXPECT_EQ(copied.error().message,
            "rank 0 sent message 1 directly to memory, but this rank takes it from its slot");
}

// A receiver that lists more than there is room for, which only its sender's count bounds.
TEST(HostileDirectFifo, AListIsCutToItsRoomAndHasTheNumberOfItsSignal) {
  const FifoOptions options = options_of_test();
  const FifoLayout layout = put_layout(options);
  FakeConnection a{0, 1, fifo_geometry(options)}, b{1, 0, fifo_geometry(options)};
  a.join(b);
  b.join(a);
  a.expose_to_puts();
  const auto send = make_send_fifo(a, Protocol::simple, options);
  EXPECT_EQ(send->destinations(), nullptr);
  DestinationList list{.number = 1,
                       .first = 0,
                       .memory = {.key = 1, .address = 0},
                       .count = UINT32_MAX,
                       .chunks = {}};
  const auto put = [&](std::uint64_t told) {
    EXPECT_TRUE(
        b.try_put(&list, sizeof list, layout.list_offset(told), {layout.destinations_signal, told})
            .ok());
  };
  put(1);
  ASSERT_NE(send->destinations(), nullptr);
  EXPECT_EQ(send->destinations()->count, std::size_t{DestinationList::most_messages});
  // The list that is there is not the one that its signal tells of.
  put(2);
  EXPECT_EQ(send->destinations(), nullptr);
  list.number = 3;
  put(3);
  EXPECT_NE(send->destinations(), nullptr);
}

// A receiver that has begun to overwrite a list leaves the last one as it is.
TEST(HostileDirectFifo, TwoListsLieSideBySide) {
  const FifoLayout layout = put_layout(options_of_test());
  EXPECT_EQ(layout.list_offset(2), layout.destinations_offset);
  EXPECT_EQ(layout.list_offset(3), layout.destinations_offset + sizeof(DestinationList));
  EXPECT_EQ(layout.list_offset(4), layout.list_offset(2));
}

}  // namespace
}  // namespace unisono::test
