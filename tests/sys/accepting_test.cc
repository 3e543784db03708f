// How listeners accept, above all where a process has no descriptor for those who wait.

#include "sys/accepting.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "apart.h"
#include "base/error.h"
#include "base/str.h"
#include "support/open_gate.h"
#include "support/sanitized.h"
#include "sys/local_client.h"
#include "sys/local_server.h"
#include "sys/real_socket.h"
#include "sys/simulated_world.h"

namespace unisono::sys {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t ms = 1'000'000;

void allow_descriptors(rlim_t soft, rlim_t hard) {
  const rlimit limit{soft, hard};
  setrlimit(RLIMIT_NOFILE, &limit);
}

// All that the limit allows.
std::vector<int> take_descriptors() {
  std::vector<int> taken;
  for (int next = dup(0); next >= 0; next = dup(0)) taken.push_back(next);
  return taken;
}

class Accepting : public testing::Test {
 protected:
  int connect() {
    const auto begun = begin_connect(where_);
    return begun.ok() ? *begun : -1;
  }
  const int listener_ = *open_listener({"127.0.0.1", 0});
  const Address where_ = *local_address(listener_);
  void TearDown() override { close(listener_); }
};

TEST_F(Accepting, TakesOneAtATimeAndTellsWhoItIs) {
  EXPECT_EQ(accept_next(listener_).descriptor, -1);
  EXPECT_EQ(accept_next(listener_).error, 0);
  const int client = connect();
  sockaddr_storage from{};
  const Accepted next = accept_next(listener_, &from);
  ASSERT_GE(next.descriptor, 0);
  EXPECT_EQ(from.ss_family, AF_INET);
  EXPECT_EQ(accept_next(listener_).descriptor, -1);
  close(next.descriptor);
  close(client);
}

TEST_F(Accepting, RaisesTheSoftLimitBeforeItFails) {
  const std::string said = said_apart(0, [this]() -> std::string {
    const int client = connect();
    allow_descriptors(32, 64);
    take_descriptors();
    std::string out = accept_next(listener_).descriptor >= 0 ? "raised, " : "not raised, ";
    take_descriptors();
    const int another = client < 0 ? -1 : accept_next(listener_).error;
    return str(out, another == 0 ? "none waits, " : "an error though none waits, ", client >= 0);
  });
  EXPECT_EQ(said, "raised, none waits, true");
}

TEST_F(Accepting, WhereDescriptorsAreMissingItFailsForOneThatWaitsAlone) {
  if (test::is_sanitized) GTEST_SKIP() << "a sanitizer needs descriptors to look at an object";
  const std::string said = said_apart(0, [this]() -> std::string {
    allow_descriptors(32, 32);
    std::vector<int> taken = take_descriptors();
    const int before = accept_next(listener_).error;
    close(taken.back());
    const int client = connect();
    const int during = accept_next(listener_).error;
    close(taken.front());
    return str(before, " ", during == EMFILE, " ", accept_next(listener_).descriptor >= 0,
               client >= 0 ? "" : " no client");
  });
  EXPECT_EQ(said, "0 true true");
}

TEST(Starvation, PausesAndLastsUntilOneIsAccepted) {
  Starvation starvation;
  EXPECT_EQ(starvation.next_try_ns(), 0);
  EXPECT_FALSE(starvation.is_lasting(5000 * ms));
  const Error why = environment_error("no descriptors");
  starvation.failed(why, 5000 * ms);
  EXPECT_EQ(starvation.next_try_ns(), 5000 * ms + Starvation::pause_ns);
  EXPECT_FALSE(starvation.is_lasting(5000 * ms + Starvation::most_ns - 1));
  starvation.failed(why, 5500 * ms);
  EXPECT_EQ(starvation.next_try_ns(), 5500 * ms + Starvation::pause_ns);
  EXPECT_TRUE(starvation.is_lasting(5000 * ms + Starvation::most_ns));
  starvation.succeeded();
  EXPECT_EQ(starvation.next_try_ns(), 0);
  EXPECT_FALSE(starvation.is_lasting(9000 * ms));
  starvation.failed(why, 9000 * ms);
  EXPECT_FALSE(starvation.is_lasting(9500 * ms));
}

// Says so at the end of the log's minute, and not before.
TEST(Starvation, IsLoggedOnceAMinute) {
  Starvation starvation;
  testing::internal::CaptureStderr();
  for (std::int64_t second = 1; second <= 62; ++second)
    starvation.failed(environment_error("no descriptors"), second * 1000 * ms);
  const std::string said = testing::internal::GetCapturedStderr();
  std::size_t lines = 0;
  for (const char letter : said) lines += letter == '\n' ? 1 : 0;
  EXPECT_EQ(lines, 2U) << said;
}

// A listener without descriptors for so many attempts.
class Starved final : public Listener {
 public:
  Starved(World& world, std::unique_ptr<Listener> inner, int failures)
      : world_(world), inner_(std::move(inner)), failures_(failures) {}
  const Address& address() const override { return inner_->address(); }
  Task<Result<Admitted>> admit(const Gate& gate, std::int64_t deadline_ns) override {
    attempts_ns.push_back(world_.now_ns());
    if (failures_-- > 0) co_return environment_error("no descriptors");
    Result<Admitted> admitted = co_await inner_->admit(gate, deadline_ns);
    co_return std::move(admitted);
  }
  std::vector<std::int64_t> attempts_ns;

 private:
  World& world_;
  std::unique_ptr<Listener> inner_;
  int failures_;
};

TEST(AdmitAll, TriesAgainAfterPausesAndTellsWhatLasts) {
  Simulation simulation{{}};
  simulation.add_process("server");
  simulation.add_process("client");
  World& world = simulation.world(0);
  constexpr int failures = 15;
  Starved listener(world, std::move(*world.listen({"server", 1})), failures);
  struct Owner final : Admissions {
    void on_admitted(Admitted) override { ++served; }
    void on_starved(const Error* why) override {
      told.push_back(why == nullptr ? "over" : why->message);
    }
    int served = 0;
    std::vector<std::string> told;
  } owner;
  simulation.start(0, admit_all(world, listener, test::open_gate, owner));
  simulation.start(1, [](World& client) -> Task<void> {
    const Address where{"server", 1};
    auto stream = co_await client.connect(where, no_deadline_ns);
    EXPECT_TRUE(stream.ok());
  }(simulation.world(1)));
  simulation.run(10'000 * ms);
  EXPECT_EQ(owner.served, 1);
  ASSERT_EQ(listener.attempts_ns.size(), std::size_t{failures} + 2);
  for (std::size_t i = 1; i <= failures; ++i)
    EXPECT_EQ(listener.attempts_ns[i] - listener.attempts_ns[i - 1], Starvation::pause_ns);
  // The eleventh failure is a second after the first one.
  ASSERT_EQ(owner.told.size(), 6U);
  EXPECT_EQ(owner.told.front(), "no descriptors");
  EXPECT_EQ(owner.told.back(), "over");
}

// One that waits for a descriptor does not keep the thread that answers busy.
TEST(LocalServerWithoutDescriptors, WaitsAndAnswersLater) {
  const std::string said = said_apart(0, []() -> std::string {
    const std::string directory = testing::TempDir() + str("unisono-starved-", getpid());
    const auto socket = *LocalSocket::listen(directory, "one");
    const std::vector<std::weak_ptr<LocalSocket>> sockets{socket};
    const int stop = eventfd(0, EFD_CLOEXEC);
    LocalServer server([](const LocalSocket&, std::string_view) { return std::string("answer"); });
    const int client = make_local_socket();
    const auto address = local_address(socket->path());
    if (connect(client, reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0)
      return "no connection";
    static_cast<void>(send(client, "ask\n", 4, 0));
    allow_descriptors(64, 64);
    const std::vector<int> taken = take_descriptors();
    const auto began = std::chrono::steady_clock::now();
    // A wait ends after 50 ms, or by an attempt to accept, and those are 100 ms apart.
    constexpr int waits = 20;
    for (int i = 0; i < waits; ++i) static_cast<void>(server.wait(sockets, stop, 50));
    const auto lasted = std::chrono::steady_clock::now() - began;
    for (const int descriptor : taken) close(descriptor);
    std::string got(16, '\0');
    while (recv(client, got.data(), got.size(), MSG_DONTWAIT) <= 0)
      static_cast<void>(server.wait(sockets, stop, 50));
    std::filesystem::remove_all(directory);
    return str(lasted >= 500ms ? "waited, " : "looked all the time, ", got.c_str());
  });
  EXPECT_EQ(said, "waited, answer");
}

}  // namespace
}  // namespace unisono::sys
