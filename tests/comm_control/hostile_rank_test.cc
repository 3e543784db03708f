// A rank that has every secret and sends what no rank sends: nobody crashes, nobody hangs, and it
// is the one that is blamed.

#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "base/wire.h"
#include "comm/control/group.h"
#include "comm/control/handshake.h"
#include "comm/join/join.h"
#include "support/quiet.h"
#include "support/real_ranks.h"
#include "sys/simulated_world.h"

namespace unisono::comm {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::int64_t forever_ns = 1000 * second_ns;
const sys::Address victim_address{"victim", 1};
const Key job_key = enrolment_key("stands for 32 random bytes");
const WireProtection wire{sys::Protection::none, false};

struct Said {
  FrameKind kind = FrameKind::message;
  MessageKey key;
  Bytes payload;
};

// Connects with a key that is right and says what it is told.
sys::Task<void> say(sys::World& world, Purpose purpose, Key key, std::vector<Said> frames,
                    Bytes* heard = nullptr) {
  Result<std::unique_ptr<sys::Stream>> stream = co_await world.connect(victim_address, forever_ns);
  Refusal refusal{};
  Result<std::unique_ptr<Channel>> channel =
      co_await prove_to_server(world, std::move(*stream), purpose, key, wire, forever_ns, refusal);
  if (!channel.ok()) co_return;
  for (const Said& said : frames) {
    Status sent = co_await (*channel)->write(said.kind, said.key, said.payload, forever_ns);
    if (!sent.ok()) co_return;
  }
  Result<Frame> answer = co_await (*channel)->read(4096, world.now_ns() + 60 * second_ns);
  if (answer.ok() && heard != nullptr) *heard = answer->payload;
  co_await (*channel)->wait_for_end(world.now_ns() + 60 * second_ns);
}

Bytes greeting(std::uint64_t job, std::uint32_t from, std::uint32_t to) {
  WireWriter out;
  out.number(job);
  out.number(from);
  out.number(to);
  return out.take();
}

Bytes failure(std::uint8_t kind, std::int32_t peer) {
  WireWriter out;
  out.number(kind);
  out.number(std::uint8_t{0});
  out.number(std::uint8_t{0});
  out.number(std::uint8_t{0});
  out.number(static_cast<std::uint32_t>(peer));
  out.number(std::uint32_t{UINT32_MAX});
  out.number(std::uint64_t{UINT64_MAX});
  out.number(std::uint32_t{0});
  out.text("so it is");
  return out.take();
}

// Rank 0 of 3 in job 7, which waits for what rank 1 says.
struct Victim {
  explicit Victim(bool is_rendezvous = false, const sys::SimulationOptions& options = {})
      : simulation(options) {
    for (const char* host : {"victim", "other"}) simulation.add_process(host);
    node = std::make_shared<ControlNode>(simulation.world(0), 0, 3, wire);
    node->set_job(7, job_key);
    auto listener = simulation.world(0).listen(victim_address);
    std::optional<ControlNode::Enrolments> enrolments;
    if (is_rendezvous) {
      enrolments.emplace();
      enrolments->key = enrolment_key("the secret");
      enrolments->serve = [](std::unique_ptr<Channel>, const Enrolment&) -> sys::Task<void> {
        co_return;
      };
    }
    EXPECT_TRUE(node->start(std::move(*listener), std::move(enrolments)).ok());
  }

  // How rank 0's exchange with rank 1 ends.
  Error exchange_beside(std::vector<Said> frames, Purpose purpose = Purpose::link,
                        const Key& key = link_key(job_key)) {
    Error out;
    simulation.start(0, exchange(out));
    simulation.start(1, say(simulation.world(1), purpose, key, std::move(frames)));
    EXPECT_TRUE(simulation.run(forever_ns));
    return out;
  }
  sys::Task<void> exchange(Error& out) {
    GroupExchange group(node, {7, 0}, Members::of(std::vector<int>{0, 1}), 0);
    Status status = co_await group.barrier(20 * second_ns);
    if (!status.ok()) out = status.error();
  }

  // Whether a message of rank 1 by this key waits to be received.
  bool has_kept(const MessageKey& key) {
    bool found = false;
    simulation.start(0, look_for(key, found));
    EXPECT_TRUE(simulation.run(2 * forever_ns));
    return found;
  }
  sys::Task<void> look_for(MessageKey key, bool& found) {
    const auto received = co_await node->receive(1, key, simulation.world(0).now_ns() + second_ns);
    found = received.ok();
  }

  sys::Simulation simulation;
  std::shared_ptr<ControlNode> node;
};

const Said right_greeting{FrameKind::greet, {}, greeting(7, 1, 0)};

TEST(HostileRank, ThatBlamesNobodyWhoIsThereIsBlamedItself) {
  for (const std::int32_t culprit : {3, 1000, 0x7fffffff, -2, static_cast<int>(0x80000000U)}) {
    Victim victim;
    const Error error =
        victim.exchange_beside({right_greeting, {FrameKind::failure, {7, 0}, failure(3, culprit)}});
    EXPECT_EQ(error.peer, 1) << culprit << ": " << error.describe();
    EXPECT_FALSE(error.timed_out);
    EXPECT_EQ(error.kind, ErrorKind::peer);
  }
  Victim victim;
  const Error error =
      victim.exchange_beside({right_greeting, {FrameKind::failure, {7, 0}, failure(3, 2)}});
  EXPECT_EQ(error.peer, 2) << error.describe();
  EXPECT_EQ(error.message, "so it is");
}

// One that was stopped while the others left an epoch, or records what it reads: what was said in
// that epoch is said once more, in the same words, and changes nothing in the next one.
TEST(HostileRank, ThatReplaysAnEpochThatIsOverIsNotHeard) {
  Victim victim;
  sys::World& world = victim.simulation.world(0);
  sys::World& other = victim.simulation.world(1);
  const std::vector<Bytes> nothing(1);
  const Said in_old{FrameKind::message, {7, 0, 0, 0}, encode_table(nothing)};
  const Said in_new{FrameKind::message, {9, 1, 0, 0}, encode_table(nothing)};
  const Said in_old_of_others{FrameKind::message, {12, 0, 0, 0}, encode_table(nothing)};
  const Said failed_in_old{FrameKind::failure, {7, 0, 0, 0}, failure(3, 2)};
  Status old_met, new_met;
  const auto members = Members::of(std::vector<int>{0, 1});
  const auto exchange = [&]() -> sys::Task<void> {
    auto old = std::make_shared<GroupExchange>(victim.node, GroupId{7, 0}, members, 0);
    GroupExchange renewed(victim.node, GroupId{9, 1}, members, 0);
    old_met = co_await old->barrier(20 * second_ns);
    old->leave();
    EXPECT_TRUE(victim.node->epochs()->is_over(0));
    new_met = co_await renewed.barrier(20 * second_ns);
  };
  const std::vector<Said> replayed{right_greeting, in_old,           failed_in_old,
                                   in_old,         in_old_of_others, in_new};
  const auto replay = [&]() -> sys::Task<void> {
    sys::Wait until(other.scheduler(), 5 * second_ns);
    co_await until;
    co_await say(other, Purpose::link, link_key(job_key), replayed);
  };
  victim.simulation.start(0, exchange());
  victim.simulation.start(1,
                          say(other, Purpose::link, link_key(job_key), {right_greeting, in_old}));
  victim.simulation.start(1, replay());
  EXPECT_TRUE(victim.simulation.run(forever_ns));
  EXPECT_TRUE(old_met.ok());
  EXPECT_TRUE(new_met.ok()) << new_met.error().describe();
  EXPECT_GE(world.now_ns(), 5 * second_ns) << "it did not wait for what belongs to its own epoch";
  EXPECT_FALSE(victim.has_kept({7, 0, 0, 0}));
  EXPECT_FALSE(victim.has_kept({12, 0, 0, 0})) << "of a group that this rank never knew";
  EXPECT_EQ(victim.node->failure({7, 0}), nullptr);
}

// Another group holds the epoch open that this communicator has left.
TEST(HostileRank, ThatSaysWhatACommunicatorHasLeftIsNotHeard) {
  Victim victim;
  victim.node->open_group({7, 0});
  victim.node->open_group({9, 1});
  const Bytes nothing = encode_table(std::vector<Bytes>(1));
  const Said in_old{FrameKind::message, {9, 0, 0, 0}, nothing};
  victim.exchange_beside({right_greeting, in_old, {FrameKind::message, {7, 0, 0, 0}, nothing}});
  EXPECT_FALSE(victim.has_kept({9, 0, 0, 0}));
}

// A group that has failed takes no more: what comes late must not be taken for what comes after.
TEST(HostileRank, ThatSpeaksAfterTheFailureIsNotHeard) {
  Victim victim;
  const Said late{FrameKind::message, {7, 0, 0, 0}, encode_table(std::vector<Bytes>(1))};
  const Error error = victim.exchange_beside(
      {right_greeting, {FrameKind::failure, {7, 0}, failure(3, 2)}, late, late});
  EXPECT_EQ(error.peer, 2) << error.describe();
  EXPECT_FALSE(victim.has_kept({7, 0, 0, 0}));
}

TEST(HostileRank, ThatTellsAnUnknownKindOfFailureIsBlamedItself) {
  Victim victim;
  const Error error =
      victim.exchange_beside({right_greeting, {FrameKind::failure, {7, 0}, failure(4, 2)}});
  EXPECT_EQ(error.peer, 1) << error.describe();
}

TEST(HostileRank, ThatSendsAFrameThatIsNotDueIsBlamedItself) {
  for (const FrameKind kind :
       {FrameKind::enrol, FrameKind::introduce, FrameKind::redirect, FrameKind::greet}) {
    Victim victim;
    const Error error = victim.exchange_beside({right_greeting, {kind, {7, 0}, {}}});
    EXPECT_EQ(error.peer, 1) << static_cast<int>(kind) << ": " << error.describe();
    EXPECT_FALSE(error.timed_out);
  }
}

TEST(HostileRank, ThatSendsATableOfOtherEntriesIsBlamedItself) {
  const std::vector<Bytes> two(2, Bytes(3));
  const std::vector<Bytes> large(1, Bytes(max_exchange_bytes + 1));
  Bytes longer = encode_table(std::vector<Bytes>(1, Bytes(3)));
  longer.push_back(std::byte{});
  const auto error_for = [](const Bytes& table) {
    Victim victim;
    return victim.exchange_beside({right_greeting, {FrameKind::message, {7, 0, 0, 0}, table}});
  };
  EXPECT_NE(error_for(encode_table(two)).message.find("2 entries; 1 were expected"),
            std::string::npos);
  for (const Bytes& table : {encode_table(two), encode_table(large), longer, Bytes{}})
    EXPECT_EQ(error_for(table).peer, 1) << error_for(table).describe();
}

// A rank that greets and then reads nothing, while rank 0 has more to say than a connection holds.
class DeafRank : public testing::Test {
 protected:
  static sys::SimulationOptions narrow() {
    sys::SimulationOptions options;
    options.most_unread_bytes = 1024;
    return options;
  }
  sys::Task<void> greet_and_sleep() {
    sys::World& own = victim.simulation.world(1);
    Result<std::unique_ptr<sys::Stream>> stream = co_await own.connect(victim_address, forever_ns);
    Refusal refusal{};
    Result<std::unique_ptr<Channel>> channel = co_await prove_to_server(
        own, std::move(*stream), Purpose::link, link_key(job_key), wire, forever_ns, refusal);
    if (!channel.ok()) co_return;
    Status sent = co_await (*channel)->write(right_greeting.kind, right_greeting.key,
                                             right_greeting.payload, forever_ns);
    sys::Wait sleep(own.scheduler(), own.now_ns() + 60 * second_ns);
    co_await sleep;
  }
  // What rank 0 hears of a message of so many bytes that it begins to send `after_ns`, with
  // `patience_ns` for it.
  sys::Task<void> send(std::int64_t after_ns, std::size_t bytes, std::int64_t patience_ns,
                       Error& heard, std::int64_t& took_ns) {
    sys::Wait begin(world.scheduler(), after_ns);
    co_await begin;
    const Bytes payload(bytes);
    Status sent = co_await victim.node->send(1, {7, 0, 0, 0}, payload, after_ns + patience_ns);
    took_ns = world.now_ns() - after_ns;
    if (!sent.ok()) heard = sent.error();
  }
  sys::Task<void> spread_news() {
    sys::Wait begin(world.scheduler(), second_ns);
    co_await begin;
    const Bytes news(1000);
    for (int i = 0; i < 4; ++i)
      victim.node->spread({7, 0}, FrameKind::failure, news, std::array{1});
  }
  void run() {
    victim.simulation.start(1, greet_and_sleep());
    EXPECT_TRUE(victim.simulation.run(forever_ns));
  }

  Victim victim{false, narrow()};
  sys::World& world = victim.simulation.world(0);
};

TEST_F(DeafRank, IsNamedToWhoeverSendsAndToWhoeverWaitsForATurn) {
  std::array<Error, 2> heard;
  std::array<std::int64_t, 2> took_ns{};
  victim.simulation.start(0, send(second_ns, 1 << 20, 20 * second_ns, heard[0], took_ns[0]));
  victim.simulation.start(0, send(2 * second_ns, 10, 5 * second_ns, heard[1], took_ns[1]));
  run();
  for (const Error& error : heard) {
    EXPECT_EQ(error.message, "rank 1 does not accept control messages in time");
    EXPECT_EQ(error.peer, 1);
    EXPECT_TRUE(error.timed_out);
  }
  EXPECT_EQ(took_ns[0], 20 * second_ns);
  EXPECT_EQ(took_ns[1], 5 * second_ns);
}

TEST_F(DeafRank, ThatTakesNoNewsHasLostItsLink) {
  victim.simulation.start(0, spread_news());
  Error heard;
  std::int64_t took_ns = 0;
  victim.simulation.start(0, send(10 * second_ns, 10, 20 * second_ns, heard, took_ns));
  run();
  EXPECT_EQ(heard.peer, 1) << heard.describe();
  EXPECT_FALSE(heard.timed_out) << heard.describe();
  EXPECT_LT(took_ns, second_ns);
}

// Its links are not made, so that rank 0 waits in vain.
TEST(HostileRank, WhoseGreetingIsNotForThisRankGetsNoLink) {
  for (const Bytes& wrong : {greeting(8, 1, 0), greeting(7, 1, 2), greeting(7, 0, 0),
                             greeting(7, 3, 0), greeting(7, 0xffffffff, 0), greeting(7, 1, 3)}) {
    Victim victim;
    const Error error = victim.exchange_beside(
        {{FrameKind::greet, {}, wrong}, {FrameKind::failure, {7, 0}, failure(3, 2)}});
    EXPECT_TRUE(error.timed_out) << error.describe();
  }
  Victim victim;
  const Error error = victim.exchange_beside(
      {{FrameKind::progress, {}, greeting(7, 1, 0)}, {FrameKind::failure, {7, 0}, failure(3, 2)}});
  EXPECT_TRUE(error.timed_out) << error.describe();
}

// A rendezvous of three ranks, of which rank 1 is honest.
struct Meeting {
  Meeting() {
    for (const char* host : {"victim", "honest", "other"}) simulation.add_process(host);
  }
  BootstrapOptions options_of(int rank) const {
    BootstrapOptions options;
    options.rank = rank;
    options.world_size = 3;
    options.rendezvous = "tcp://" + victim_address.text();
    options.secret = "the secret";
    options.timeout_ns = 20 * second_ns;
    options.protection = wire.between_hosts;
    return options;
  }
  sys::Task<void> join_as(int rank) {
    const SelfDescription self;
    Result<Joined> joined =
        co_await join_job(simulation.world(rank), options_of(rank), self, nullptr);
    auto& out = rank == 0 ? victim : honest;
    if (!joined.ok()) out = joined.error();
    // Long enough for late ones.
    sys::World& world = simulation.world(rank);
    sys::Wait pause(world.scheduler(), world.now_ns() + 30 * second_ns);
    co_await pause;
  }
  sys::Task<void> come_later(std::vector<Said> frames, Bytes* heard) {
    sys::World& world = simulation.world(2);
    sys::Wait pause(world.scheduler(), world.now_ns() + second_ns);
    co_await pause;
    co_await say(world, Purpose::enrolment, enrolment_key("the secret"), std::move(frames), heard);
  }
  void run(std::vector<Said> frames, Bytes* heard = nullptr) {
    for (const int rank : {0, 1}) simulation.start(rank, join_as(rank));
    simulation.start(2, come_later(std::move(frames), heard));
    EXPECT_TRUE(simulation.run(forever_ns));
  }

  sys::Simulation simulation{{}};
  std::optional<Error> victim;
  std::optional<Error> honest;
};

TEST(HostileRank, ThatEnrolsAsNobodyEndsTheStartWithASentence) {
  struct Case {
    Enrolment enrolment;
    const char* says;
    int culprit;
  };
  const std::vector<Case> cases{
      {{3, 3, "other:1"}, "enrolled as rank 3; ranks are 0 to 2", -1},
      {{0xffffffff, 3, "other:1"}, "enrolled as rank 4294967295", -1},
      {{0x80000000, 3, "other:1"}, "enrolled as rank 2147483648", -1},
      {{0, 3, "other:1"}, "two processes have rank 0", 0},
      {{2, 4, "other:1"}, "started with 4 ranks, rank 0 with 3", 2},
      {{9, 0xffffffff, "other:1"}, "started with 4294967295 ranks", -1},
      {{1, 3, "other:1"}, "two processes joined as rank 1", 1},
  };
  for (const Case& one : cases) {
    Meeting meeting;
    meeting.run({{FrameKind::enrol, {}, encode(one.enrolment)}});
    for (const auto& error : {meeting.victim, meeting.honest}) {
      ASSERT_TRUE(error.has_value());
      EXPECT_NE(error->message.find(one.says), std::string::npos) << error->message;
      EXPECT_EQ(error->peer, one.culprit);
      EXPECT_EQ(error->kind, ErrorKind::misuse);
    }
  }
}

TEST(HostileRank, ThatBlamesNobodyWhoIsThereAtTheRendezvousIsBlamedItself) {
  const Said enrol{FrameKind::enrol, {}, encode(Enrolment{2, 3, "other:1"})};
  for (const Said& next :
       {Said{FrameKind::failure, {}, failure(3, 3)}, Said{FrameKind::failure, {}, failure(3, -7)},
        Said{FrameKind::failure, {}, {}}, Said{FrameKind::introduce, {}, {}}}) {
    Meeting meeting;
    meeting.run({enrol, next});
    for (const auto& error : {meeting.victim, meeting.honest}) {
      ASSERT_TRUE(error.has_value());
      EXPECT_EQ(error->peer, 2) << error->describe();
      EXPECT_FALSE(error->timed_out);
    }
  }
}

// The secret only admits to the job, whose number everybody may know.
TEST(HostileRank, ThatGreetsWithTheSecretGetsNoLink) {
  Victim victim(true);
  const Error error =
      victim.exchange_beside({right_greeting, {FrameKind::failure, {7, 0}, failure(3, 2)}},
                             Purpose::enrolment, enrolment_key("the secret"));
  EXPECT_TRUE(error.timed_out) << error.describe();
}

TEST(HostileRank, ThatEnrolsOnALinkIsNotServed) {
  Victim victim;
  const Error error =
      victim.exchange_beside({{FrameKind::enrol, {}, encode(Enrolment{1, 3, "other:1"})},
                              {FrameKind::failure, {7, 0}, failure(3, 2)}});
  EXPECT_TRUE(error.timed_out) << error.describe();
}

// A rendezvous that is none: it has the secret and says what no rank 0 says.
struct FalseRendezvous {
  explicit FalseRendezvous(std::vector<Said> frames) {
    for (const char* host : {"victim", "guest"}) simulation.add_process(host);
    simulation.start(0, serve(std::move(frames)));
    simulation.start(1, come());
    EXPECT_TRUE(simulation.run(forever_ns));
  }
  sys::Task<void> serve(std::vector<Said> frames) {
    sys::World& world = simulation.world(0);
    Result<std::unique_ptr<sys::Listener>> listener = world.listen(victim_address);
    const auto doorkeeper = std::move(*Doorkeeper::make(world, wire, 256));
    doorkeeper->admit(Purpose::enrolment, enrolment_key("the secret"));
    Result<sys::Admitted> admitted = co_await (*listener)->admit(*doorkeeper, forever_ns);
    Result<Doorkeeper::Guest> guest =
        co_await doorkeeper->welcome(std::move(*admitted), forever_ns);
    Result<Frame> enrolment = co_await guest->channel->read(0, forever_ns);
    EXPECT_TRUE(enrolment.ok());
    for (const Said& said : frames) {
      Status sent = co_await guest->channel->write(said.kind, said.key, said.payload, forever_ns);
      if (!sent.ok()) break;
    }
    co_await guest->channel->wait_for_end(world.now_ns() + 60 * second_ns);
  }
  sys::Task<void> come() {
    BootstrapOptions options;
    options.rank = 1;
    options.world_size = 3;
    options.rendezvous = "tcp://" + victim_address.text();
    options.secret = "the secret";
    options.timeout_ns = 20 * second_ns;
    options.protection = wire.between_hosts;
    const SelfDescription self;
    Result<Joined> joined = co_await join_job(simulation.world(1), options, self, nullptr);
    EXPECT_FALSE(joined.ok());
    if (!joined.ok()) error = joined.error();
  }

  sys::Simulation simulation{{}};
  Error error;
};

TEST(HostileRendezvous, ThatSaysWhatNoRankZeroSaysIsFoundOut) {
  const Said introduction{FrameKind::introduce, {}, encode(Introduction{7, job_key})};
  for (const Said& said :
       {Said{FrameKind::greet, {}, {}}, Said{FrameKind::redirect, {}, {}},
        Said{FrameKind::enrol, {}, {}}, Said{FrameKind::introduce, {}, Bytes(3)},
        Said{FrameKind::failure, {}, failure(3, 3)}, Said{FrameKind::failure, {}, failure(9, 1)},
        Said{FrameKind::failure, {}, Bytes(2)}}) {
    const FalseRendezvous at_once({said});
    EXPECT_FALSE(at_once.error.timed_out) << at_once.error.describe();
    EXPECT_LT(at_once.error.peer, 3);
    const FalseRendezvous later({introduction, said});
    EXPECT_FALSE(later.error.timed_out) << later.error.describe();
  }
  const FalseRendezvous twice({introduction, introduction});
  EXPECT_EQ(twice.error.peer, 0) << twice.error.describe();
  EXPECT_FALSE(twice.error.timed_out);
  const FalseRendezvous honest({{FrameKind::failure, {}, failure(3, 2)}});
  EXPECT_EQ(honest.error.peer, 2);
  EXPECT_EQ(honest.error.message, "so it is");
}

TEST(GivingUp, BlamesOnlyMembers) {
  auto results = bootstrap_all(2);
  ASSERT_TRUE(results[0].ok());
  ControlGroup& world = *results[0]->world;
  EXPECT_TRUE(world.watch(2).has_value());
  EXPECT_TRUE(world.watch(-1).has_value());
  world.give_up(Error{.kind = ErrorKind::peer, .peer = 1 << 30, .message = "somebody"});
  const auto told = world.look();
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->peer, -1);
}

}  // namespace
}  // namespace unisono::comm
