// Both worlds keep the same promises.

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/str.h"
#include "support/open_gate.h"
#include "sys/real_world.h"
#include "sys/simulated_world.h"
#include "sys/user_secret.h"
#include "sys/waiting_room.h"

namespace unisono::sys {
namespace {

constexpr std::int64_t second_ns = 1'000'000'000;

// Runs a task of one process in the world named by the parameter.
class EveryWorld : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string("real")) {
      real_ = std::move(*RealWorld::create());
    } else {
      simulation_ = std::make_unique<Simulation>(SimulationOptions{});
      simulation_->add_process("127.0.0.1");
    }
  }
  World& world() { return real_ ? static_cast<World&>(*real_) : simulation_->world(0); }
  std::string run(Task<std::string> task) {
    if (real_) return real_->run(std::move(task));
    std::string out = "never ended";
    simulation_->start(0, keep(std::move(task), out));
    simulation_->run(3600 * second_ns);
    return out;
  }
  static Task<void> keep(Task<std::string> task, std::string& out) { out = co_await task; }

  std::unique_ptr<RealWorld> real_;
  std::unique_ptr<Simulation> simulation_;
};

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 31 + i / 251);
  return out;
}

Task<void> echo(Listener& listener, std::size_t bytes, std::int64_t deadline_ns) {
  Result<Admitted> admitted = co_await listener.admit(test::open_gate, deadline_ns);
  if (!admitted.ok()) co_return;
  std::vector<std::byte> buffer(bytes);
  Status status = co_await read_exactly(*admitted->stream, buffer, deadline_ns);
  if (status.ok()) status = co_await write_all(*admitted->stream, buffer, deadline_ns);
}

Task<std::string> send_through_echo(World& world, std::size_t bytes) {
  const std::int64_t deadline_ns = world.now_ns() + 60 * second_ns;
  const Address anywhere{"127.0.0.1", 0};
  Result<std::unique_ptr<Listener>> listener = world.listen(anywhere);
  if (!listener.ok()) co_return listener.error().describe();
  TaskScope tasks;
  tasks.spawn(echo(**listener, bytes, deadline_ns));
  const Address& there = (*listener)->address();
  Result<std::unique_ptr<Stream>> stream = co_await world.connect(there, deadline_ns);
  if (!stream.ok()) co_return stream.error().describe();
  const std::vector<std::byte> sent = pattern(bytes);
  Status status = co_await write_all(**stream, sent, deadline_ns);
  if (!status.ok()) co_return status.error().describe();
  std::vector<std::byte> received(bytes);
  status = co_await read_exactly(**stream, received, deadline_ns);
  if (!status.ok()) co_return status.error().describe();
  std::array<std::byte, 1> nothing;
  Result<std::size_t> end = co_await (*stream)->read_some(nothing, deadline_ns);
  if (!end.ok() || *end != 0) co_return "the end was not seen";
  co_return received == sent ? "equal" : "different";
}

TEST_P(EveryWorld, AStreamCarriesItsBytesInOrderAndThenEnds) {
  // The larger one is more than a socket's buffers hold at once.
  for (const std::size_t bytes : {1, 1000, 200'000})
    EXPECT_EQ(run(send_through_echo(world(), bytes)), "equal");
}

Task<std::string> connect_to_nobody(World& world) {
  const Address nobody{"127.0.0.1", 1};
  Result<std::unique_ptr<Stream>> stream =
      co_await world.connect(nobody, world.now_ns() + second_ns);
  co_return stream.ok() ? "connected" : stream.error().message;
}

TEST_P(EveryWorld, AConnectionToNobodyIsRefused) {
  EXPECT_NE(run(connect_to_nobody(world())).find("refused"), std::string::npos);
}

Task<std::string> wait_in_vain(World& world) {
  const std::int64_t deadline_ns = world.now_ns() + second_ns / 20;
  const Address anywhere{"127.0.0.1", 0};
  Result<std::unique_ptr<Listener>> listener = world.listen(anywhere);
  Result<Admitted> nobody = co_await (*listener)->admit(test::open_gate, deadline_ns);
  if (nobody.ok() || !nobody.error().timed_out) co_return "accept did not time out";
  const Address& there = (*listener)->address();
  Result<std::unique_ptr<Stream>> stream =
      co_await world.connect(there, world.now_ns() + 60 * second_ns);
  if (!stream.ok()) co_return stream.error().describe();
  std::array<std::byte, 1> byte;
  const std::int64_t soon_ns = world.now_ns() + second_ns / 20;
  Result<std::size_t> got = co_await (*stream)->read_some(byte, soon_ns);
  if (got.ok() || !got.error().timed_out) co_return "read did not time out";
  co_return world.now_ns() >= soon_ns ? "timed out" : "timed out early";
}

TEST_P(EveryWorld, EveryWaitEndsAtItsDeadline) {
  EXPECT_EQ(run(wait_in_vain(world())), "timed out");
}

Task<std::string> listen_twice(World& world) {
  const Address anywhere{"127.0.0.1", 0};
  Result<std::unique_ptr<Listener>> first = world.listen(anywhere);
  const Address taken = (*first)->address();
  Result<std::unique_ptr<Listener>> second = world.listen(taken);
  co_return second.ok() ? "listens twice" : second.error().message;
}

TEST_P(EveryWorld, APortIsListenedOnByOneOnly) {
  EXPECT_NE(run(listen_twice(world())).find("in use"), std::string::npos);
}

// A name of the host is one process's until its listener goes.
Task<std::string> meet_by_name(World& world) {
  const Address name{"@unisono-world-test-" + std::to_string(getpid()), 0};
  const std::int64_t deadline_ns = world.now_ns() + 60 * second_ns;
  Result<std::unique_ptr<Listener>> listener = world.listen(name);
  if (!listener.ok()) co_return listener.error().describe();
  Result<std::unique_ptr<Listener>> second = world.listen(name);
  if (second.ok()) co_return "listens twice";
  Result<std::unique_ptr<Stream>> stream = co_await world.connect(name, deadline_ns);
  if (!stream.ok()) co_return stream.error().describe();
  Result<Admitted> admitted = co_await (*listener)->admit(test::open_gate, deadline_ns);
  if (!admitted.ok()) co_return admitted.error().describe();
  std::array<std::byte, 3> bytes{std::byte{1}, std::byte{2}, std::byte{3}};
  Status done = co_await write_all(**stream, bytes, deadline_ns);
  std::array<std::byte, 3> heard{};
  if (done.ok()) done = co_await read_exactly(*admitted->stream, heard, deadline_ns);
  if (!done.ok()) co_return done.error().describe();
  listener->reset();
  second = world.listen(name);
  if (!second.ok()) co_return second.error().describe();
  co_return heard == bytes ? "met" : "something else";
}

TEST_P(EveryWorld, ProcessesOfAHostMeetByName) { EXPECT_EQ(run(meet_by_name(world())), "met"); }

// Wants "open" from connection number n, after n itself.
class Sesame final : public Gate {
 public:
  explicit Sesame(std::size_t most_waiting) : most_waiting_(most_waiting) {}
  std::vector<std::byte> challenge(std::uint64_t number) const override {
    return {static_cast<std::byte>(number)};
  }
  std::size_t answer_bytes(std::span<const std::byte>) const override { return 5; }
  Status check(std::uint64_t number, std::span<const std::byte> answer) const override {
    const auto right = word(number);
    if (std::equal(answer.begin(), answer.end(), right.begin(), right.end())) return {};
    return environment_error("a wrong word");
  }
  std::vector<std::byte> refusal(std::uint64_t, std::span<const std::byte> answer) const override {
    if (answer.empty()) return {};
    return {std::byte{'n'}};
  }
  std::size_t most_waiting() const override { return most_waiting_; }

  static std::vector<std::byte> word(std::uint64_t number) {
    return {static_cast<std::byte>(number), std::byte{'o'}, std::byte{'p'}, std::byte{'e'},
            std::byte{'n'}};
  }

 private:
  const std::size_t most_waiting_;
};

Task<void> admit_one(Listener& listener, const Gate& gate, std::int64_t deadline_ns,
                     std::string& out) {
  Result<Admitted> admitted = co_await listener.admit(gate, deadline_ns);
  out = admitted.ok() ? str("number ", admitted->number) : admitted.error().message;
  if (!admitted.ok()) co_return;
  // What came after the answer is for the stream.
  std::array<std::byte, 1> more;
  Status read = co_await read_exactly(*admitted->stream, more, deadline_ns);
  out += read.ok() && more[0] == std::byte{'!'} ? "!" : "?";
  Status sent = co_await write_all(*admitted->stream, more, deadline_ns);
  if (!sent.ok()) out = sent.error().message;
}

// What a client gets for an answer that comes in two pieces.
Task<std::string> answer_at(World& world, const Address& there, bool is_right) {
  const std::int64_t deadline_ns = world.now_ns() + 60 * second_ns;
  Result<std::unique_ptr<Stream>> stream = co_await world.connect(there, deadline_ns);
  if (!stream.ok()) co_return stream.error().message;
  std::array<std::byte, 1> byte;
  Status status = co_await read_exactly(**stream, byte, deadline_ns);
  if (!status.ok()) co_return "no challenge";
  std::vector<std::byte> word = Sesame::word(std::to_integer<std::uint64_t>(byte[0]));
  if (!is_right) word.back() = std::byte{'?'};
  word.push_back(std::byte{'!'});
  status = co_await write_all(**stream, std::span(word).first(2), deadline_ns);
  Wait pause(world.scheduler(), world.now_ns() + second_ns / 50);
  co_await pause;
  if (status.ok()) status = co_await write_all(**stream, std::span(word).subspan(2), deadline_ns);
  std::string heard;
  for (;;) {
    Result<std::size_t> got = co_await (*stream)->read_some(byte, deadline_ns);
    if (!got.ok() || *got == 0) co_return heard;
    heard += static_cast<char>(byte[0]);
  }
}

Task<std::string> pass_the_gate(World& world) {
  const std::int64_t deadline_ns = world.now_ns() + 60 * second_ns;
  const Sesame gate(4);
  const Address anywhere{"127.0.0.1", 0};
  Result<std::unique_ptr<Listener>> listener = world.listen(anywhere);
  if (!listener.ok()) co_return listener.error().describe();
  std::string admitted;
  TaskScope tasks;
  tasks.spawn(admit_one(**listener, gate, deadline_ns, admitted));
  const Address there = (*listener)->address();
  const std::string wrong = co_await answer_at(world, there, false);
  const std::string right = co_await answer_at(world, there, true);
  co_return str(wrong, " ", right, " ", admitted);
}

TEST_P(EveryWorld, OnlyTheRightAnswerPassesTheGate) {
  EXPECT_EQ(run(pass_the_gate(world())), "n ! number 2!");
}

const std::string too_slow = "the machine is too slow to tell";

// Silent connections, more than there is room for: the oldest go first, the others after a second.
Task<std::string> wait_at_the_gate(World& world) {
  const std::int64_t begun_ns = world.now_ns();
  const Sesame gate(4);
  const Address anywhere{"127.0.0.1", 0};
  Result<std::unique_ptr<Listener>> listener = world.listen(anywhere);
  if (!listener.ok()) co_return listener.error().describe();
  std::string nobody;
  TaskScope tasks;
  tasks.spawn(admit_one(**listener, gate, begun_ns + 600 * second_ns, nobody));
  const Address there = (*listener)->address();
  std::vector<std::unique_ptr<Stream>> silent;
  std::array<std::byte, 1> byte;
  for (int i = 0; i < 7; ++i) {
    Result<std::unique_ptr<Stream>> stream =
        co_await world.connect(there, world.now_ns() + 60 * second_ns);
    if (!stream.ok()) co_return stream.error().message;
    Status challenged = co_await read_exactly(**stream, byte, world.now_ns() + 60 * second_ns);
    if (!challenged.ok()) co_return challenged.error().message;
    silent.push_back(std::move(*stream));
  }
  // All are there before the first one's second is over, or a busy machine decides who goes.
  if (world.now_ns() - begun_ns > answer_timeout_ns / 2) co_return too_slow;
  std::string out;
  for (const auto& stream : silent) {
    Result<std::size_t> end = co_await stream->read_some(byte, begun_ns + 60 * second_ns);
    if (!end.ok() || *end != 0) co_return "no end";
    out += world.now_ns() - begun_ns < answer_timeout_ns ? "made room, " : "timed out, ";
  }
  co_return out + nobody;
}

TEST_P(EveryWorld, SilentConnectionsAtTheGateGoTheOldestFirst) {
  std::string became = too_slow;
  for (int attempt = 0; attempt < 20 && became == too_slow; ++attempt)
    became = run(wait_at_the_gate(world()));
  EXPECT_EQ(became,
            "made room, made room, made room, timed out, timed out, timed out, timed out, ");
}

Task<std::string> come_with_wrong_words(World& world) {
  const Sesame gate(4);
  const Address anywhere{"127.0.0.1", 0};
  Result<std::unique_ptr<Listener>> listener = world.listen(anywhere);
  if (!listener.ok()) co_return listener.error().describe();
  std::string nobody;
  TaskScope tasks;
  tasks.spawn(admit_one(**listener, gate, world.now_ns() + 60 * second_ns, nobody));
  const Address there = (*listener)->address();
  for (int i = 0; i < 5; ++i) {
    const std::string heard = co_await answer_at(world, there, false);
    if (heard != "n") co_return heard;
  }
  co_return "refused";
}

TEST_P(EveryWorld, RefusalsOfOneHostAreLoggedOnceAMinute) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run(come_with_wrong_words(world())), "refused");
  const std::string logged = testing::internal::GetCapturedStderr();
  EXPECT_NE(logged.find("127.0.0.1: a wrong word"), std::string::npos) << logged;
  EXPECT_EQ(std::count(logged.begin(), logged.end(), '\n'), 1) << logged;
}

INSTANTIATE_TEST_SUITE_P(Worlds, EveryWorld, testing::Values("real", "simulated"),
                         [](const auto& test) { return test.param; });

Task<int> add_after_others(RealWorld& world, WaitQueue& queue, int& arrived, int all) {
  ++arrived;
  queue.notify_all();
  while (arrived < all) {
    Wait wait(world.scheduler(), queue, world.now_ns() + 60 * second_ns);
    const bool notified = co_await wait;
    if (!notified) co_return -1;
  }
  co_return arrived;
}

// Each task waits for all the others, so the loop must run all threads' tasks, whoever drives it.
TEST(RealWorld, RunsTheTasksOfManyThreadsTogether) {
  auto world = std::move(*RealWorld::create());
  constexpr int threads = 8;
  for (int round = 0; round < 50; ++round) {
    WaitQueue queue;
    int arrived = 0;
    std::atomic<int> right{0};
    std::vector<std::thread> all;
    for (int i = 0; i < threads; ++i)
      all.emplace_back([&] {
        right += world->run(add_after_others(*world, queue, arrived, threads)) == threads;
      });
    for (auto& thread : all) thread.join();
    ASSERT_EQ(right, threads);
  }
}

Task<bool> wait_for_flag(RealWorld& world, WaitQueue& queue, const bool& flag) {
  while (!flag) {
    Wait wait(world.scheduler(), queue, world.now_ns() + 60 * second_ns);
    const bool notified = co_await wait;
    if (!notified) co_return false;
  }
  co_return true;
}

TEST(RealWorld, APostedActionReachesTheLoopFromAnotherThread) {
  auto world = std::move(*RealWorld::create());
  for (int round = 0; round < 50; ++round) {
    WaitQueue queue;
    bool flag = false;
    std::thread other([&] {
      world->post([&] {
        flag = true;
        queue.notify_all();
      });
    });
    EXPECT_TRUE(world->run(wait_for_flag(*world, queue, flag)));
    other.join();
  }
}

// A run with fixed delays: an attempt to connect arrives after 1 us and is answered after 2 us.
struct Two {
  Two() : simulation({.min_delay_ns = 1000, .max_delay_ns = 1000}) {
    simulation.add_process("a");
    simulation.add_process("b");
  }
  Task<void> listen(std::int64_t until_ns) {
    const Address here{"b", 80};
    Result<std::unique_ptr<Listener>> listener = simulation.world(1).listen(here);
    EXPECT_TRUE(listener.ok());
    Wait pause(simulation.world(1).scheduler(), until_ns);
    co_await pause;
  }
  Task<void> connect(std::int64_t until_ns) {
    const Address there{"b", 80};
    Result<std::unique_ptr<Stream>> stream = co_await simulation.world(0).connect(there, until_ns);
    has_connected = stream.ok();
    Wait pause(simulation.world(0).scheduler(), no_deadline_ns);
    if (has_connected) co_await pause;
  }
  Simulation simulation;
  bool has_connected = false;
};

// The attempt is given up before it arrives, or while its answer is on the way.
TEST(SimulatedWorld, AConnectionThatNothingWaitsForIsClosed) {
  for (const std::int64_t given_up_ns : {500, 1500}) {
    Two two;
    two.simulation.start(1, two.listen(1600));
    two.simulation.start(0, two.connect(given_up_ns));
    EXPECT_TRUE(two.simulation.run(second_ns));
    EXPECT_FALSE(two.has_connected);
    EXPECT_EQ(two.simulation.open_streams(), 0U) << given_up_ns;
  }
}

TEST(SimulatedWorld, TheEndOfASimulationTellsNoWatcher) {
  auto two = std::make_unique<Two>();
  std::string last;
  two->simulation.watch([&](int, std::string_view place) { last = place; });
  two->simulation.start(1, two->listen(second_ns));
  two->simulation.start(0, two->connect(second_ns));
  EXPECT_FALSE(two->simulation.run(10 * second_ns));
  EXPECT_TRUE(two->has_connected);
  last.clear();
  two.reset();
  EXPECT_EQ(last, "");
}

TEST(Address, IsReadAndWrittenTheSameWay) {
  for (const char* text : {"10.0.0.1:0", "node-7.cluster:29500", "[::1]:65535"}) {
    const auto address = Address::parse(text);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_EQ(address->text(), text);
  }
  for (const char* text : {"", "host", ":1", "h:", "h:x", "h:65536", "h:-1", "::1:80", "h:1 "})
    EXPECT_FALSE(Address::parse(text).ok()) << text;
}

TEST(Address, OnlyWhatIsWrittenAsLoopbackCountsAsSuch) {
  EXPECT_TRUE((Address{"127.0.0.1", 1}.is_loopback()));
  EXPECT_TRUE((Address{"::1", 1}.is_loopback()));
  EXPECT_TRUE((Address{"localhost", 1}.is_loopback()));
  EXPECT_FALSE((Address{"127.example.org", 1}.is_loopback()));
  EXPECT_FALSE((Address{"10.0.0.1", 1}.is_loopback()));
}

TEST(UserSecret, IsMadeOnceAndRefusedWhenOthersCouldReadIt) {
  char name[] = "/tmp/unisono-test-XXXXXX";
  const std::string folder = std::string(mkdtemp(name)) + "/private";
  const auto first = user_secret(folder);
  ASSERT_TRUE(first.ok()) << first.error().describe();
  EXPECT_EQ(first->size(), 64u);
  EXPECT_EQ(*user_secret(folder), *first);
  std::filesystem::permissions(folder, std::filesystem::perms::group_read,
                               std::filesystem::perm_options::add);
  EXPECT_FALSE(user_secret(folder).ok());
  std::filesystem::remove_all(name);
}

}  // namespace
}  // namespace unisono::sys
