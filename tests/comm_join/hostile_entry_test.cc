// A rank that joins a job as every rank does, up to what it says of its subtree.

#include <gtest/gtest.h>

#include "comm/control/node.h"
#include "comm/join/join.h"
#include "support/quiet.h"
#include "support/real_ranks.h"
#include "sys/simulated_world.h"

namespace unisono::comm {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::int64_t forever_ns = 1000 * second_ns;
constexpr std::uint64_t assembly_sequence = ~std::uint64_t{0};
const sys::Address victim_address{"victim", 1};
const WireProtection wire{sys::Protection::none, false};

// Rank 0 of 2 is honest; rank 1 says `payload`.
struct Meeting {
  explicit Meeting(Bytes payload, FrameKind kind = FrameKind::message) {
    for (const char* host : {"victim", "other"}) simulation.add_process(host);
    simulation.start(0, join());
    simulation.start(1, lie(std::move(payload), kind));
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
    const SelfDescription self;
    Result<Joined> joined = co_await join_job(simulation.world(0), options, self, nullptr);
    if (!joined.ok()) error = joined.error();
    is_joined = joined.ok();
  }
  sys::Task<void> lie(Bytes payload, FrameKind kind) {
    sys::World& world = simulation.world(1);
    sys::Wait pause(world.scheduler(), second_ns);
    co_await pause;
    Result<std::unique_ptr<sys::Stream>> stream =
        co_await world.connect(victim_address, forever_ns);
    Refusal refusal{};
    Result<std::unique_ptr<Channel>> channel =
        co_await prove_to_server(world, std::move(*stream), Purpose::enrolment,
                                 enrolment_key("the secret"), wire, forever_ns, refusal);
    const MessageKey no_key;
    const Bytes enrolment = encode(Enrolment{1, 2, "other:1"});
    Status done = co_await (*channel)->write(FrameKind::enrol, no_key, enrolment, forever_ns);
    Result<Frame> frame = co_await (*channel)->read(0, forever_ns);
    Result<Introduction> introduction = decode_introduction(frame->payload);
    const MessageKey key{introduction->job, 0, assembly_sequence, 0};
    done = co_await (*channel)->write(kind, key, payload, forever_ns);
    EXPECT_TRUE(done.ok());
    co_await (*channel)->wait_for_end(world.now_ns() + 60 * second_ns);
  }

  sys::Simulation simulation{{}};
  bool is_joined = false;
  Error error;
};

TEST(HostileEntry, ThatIsNoneIsItsRanksOwnFault) {
  Census census({.host = "other"}, Key{});
  census.addresses = {"other:1"};
  const Bytes right = encode(census);
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

TEST(HostileEntry, ThatReportsProgressOfOthersIsItsRanksOwnFault) {
  for (const Bytes& wrong : {Bytes(3), encode(Progress{{{0, 1}}, {}})}) {
    const Meeting meeting(wrong, FrameKind::progress);
    EXPECT_FALSE(meeting.is_joined);
    EXPECT_EQ(meeting.error.peer, 1) << meeting.error.describe();
    EXPECT_FALSE(meeting.error.timed_out);
  }
}

}  // namespace
}  // namespace unisono::comm
