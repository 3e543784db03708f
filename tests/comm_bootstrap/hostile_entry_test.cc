// A rank that joins a job as every rank does, up to its entry in the table of addresses.

#include <gtest/gtest.h>

#include "comm/bootstrap/join.h"
#include "comm/bootstrap/node.h"
#include "real_ranks.h"
#include "support/quiet.h"
#include "sys/simulated_world.h"

namespace unisono::comm {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::int64_t forever_ns = 1000 * second_ns;
constexpr std::uint64_t bootstrap_sequence = ~std::uint64_t{0};
const sys::Address victim_address{"victim", 1};
const WireProtection wire{sys::Protection::none, false};

// Rank 0 of 2 is honest; rank 1 says `entry`.
struct Meeting {
  explicit Meeting(Bytes entry) {
    for (const char* host : {"victim", "other"}) simulation.add_process(host);
    simulation.start(0, join());
    simulation.start(1, lie(std::move(entry)));
    EXPECT_TRUE(simulation.run(forever_ns));
  }
  sys::Task<void> join() {
    BootstrapOptions options;
    options.rank = 0;
    options.world_size = 2;
    options.rendezvous = "tcp://" + victim_address.text();
    options.secret = "the secret";
    options.timeout_ns = 20 * second_ns;
    options.protection = wire.between_hosts;
    Result<Joined> joined = co_await join_job(simulation.world(0), options, {}, nullptr);
    if (!joined.ok()) error = joined.error();
    is_joined = joined.ok();
  }
  sys::Task<void> lie(Bytes entry) {
    sys::World& world = simulation.world(1);
    sys::Wait pause(world.scheduler(), second_ns);
    co_await pause;
    Result<std::unique_ptr<sys::Stream>> stream =
        co_await world.connect(victim_address, forever_ns);
    Refusal refusal{};
    Result<std::unique_ptr<Channel>> channel =
        co_await prove_to_server(world, std::move(*stream), Purpose::enrolment,
                                 enrolment_key("the secret"), wire, forever_ns, refusal);
    auto node = std::make_shared<ControlNode>(world, 1, 2, wire);
    Result<std::unique_ptr<sys::Listener>> listener = world.listen({"other", 0});
    Status done = node->start(std::move(*listener), std::nullopt);
    const MessageKey no_key;
    const Bytes enrolment = encode(Enrolment{1, 2, node->address().text()});
    done = co_await (*channel)->write(FrameKind::enrol, no_key, enrolment, forever_ns);
    Result<Frame> frame = co_await (*channel)->read(0, forever_ns);
    Result<Introduction> introduction = decode_introduction(frame->payload);
    node->set_job(introduction->job, (*channel)->wrap(introduction->wrapped_key));
    const GroupId group{introduction->job, 0};
    node->open_group(group);
    node->set_address(0, introduction->next_address);
    done = co_await node->link(0, group, forever_ns);
    const MessageKey key{introduction->job, 0, bootstrap_sequence, 0};
    const Bytes table = encode_table(std::vector<Bytes>(1, std::move(entry)), "");
    done = co_await node->send(0, key, table, forever_ns);
    EXPECT_TRUE(done.ok());
    done = co_await (*channel)->write(FrameKind::done, no_key, {}, forever_ns);
    co_await (*channel)->wait_for_end(world.now_ns() + 60 * second_ns);
  }

  sys::Simulation simulation{{}};
  bool is_joined = false;
  Error error;
};

TEST(HostileEntry, ThatIsNoneIsItsRanksOwnFault) {
  const Bytes right = encode(Entry{"other:1", {}});
  EXPECT_TRUE(Meeting(right).is_joined);
  Bytes longer = right;
  longer.push_back({});
  for (const Bytes& wrong : {Bytes(), Bytes(3), longer, Bytes(right.begin(), right.end() - 1)}) {
    const Meeting meeting(wrong);
    EXPECT_FALSE(meeting.is_joined);
    EXPECT_EQ(meeting.error.peer, 1) << meeting.error.describe();
    EXPECT_EQ(meeting.error.message.find("rank 1: "), 0U) << meeting.error.describe();
    EXPECT_FALSE(meeting.error.timed_out);
  }
}

}  // namespace
}  // namespace unisono::comm
