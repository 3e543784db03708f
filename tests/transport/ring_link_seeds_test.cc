// Two ends of a ring link with their forwarders and kernels in virtual time: a seed decides who
// runs when, how long puts take, and what strikes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "base/str.h"
#include "support/sanitized.h"
#include "transport/emulated/network.h"
#include "transport/ring/forwarder.h"
#include "transport/ring_kernel.h"

namespace unisono::test {
namespace {

using transport::emulated::Network;
using transport::ring::Forwarder;
using transport::ring::Link;

constexpr std::int64_t ms = 1'000'000;
constexpr std::int64_t second = 1000 * ms;
// Kernels give up then.
constexpr std::int64_t kernels_end_ns = 30 * second;

struct Message {
  std::vector<std::byte> payload;
  std::uint32_t tag;
};

// What end `end` sends as its message of that number.
Message message_of(std::uint64_t seed, int end, int number) {
  std::seed_seq draws{seed, static_cast<std::uint64_t>(end), static_cast<std::uint64_t>(number)};
  std::mt19937_64 random(draws);
  const std::size_t bytes = random() % 5 == 0 ? 0 : random() % (ring_geometry.slot_bytes + 1);
  std::vector<std::byte> payload(bytes);
  for (std::byte& each : payload) each = static_cast<std::byte>(random());
  return {.payload = std::move(payload), .tag = static_cast<std::uint32_t>(random())};
}

// One end and what its kernel does: it sends as many messages as it receives, in several launches.
class End {
 public:
  End(std::uint64_t seed, int number, int messages, sys::World& world, Network& network)
      : seed_(seed),
        number_(number),
        messages_(messages),
        world_(world),
        network_(network),
        random_(seed * 2 + static_cast<std::uint64_t>(number)) {}

  void run() {
    if (!open()) return;
    RingKernel kernel(*link_, [this] { pause(); });
    const int per_launch = 1 + static_cast<int>(random_() % 20);
    while (is_right() && sent_ + received_ < 2 * messages_ && world_.now_ns() < kernels_end_ns) {
      const int at = std::min(messages_, per_launch * ++launches_);
      forwarder_->wake();
      while (is_right() && !is_over(kernel, at) && world_.now_ns() < kernels_end_ns) {
        if (failure_.ok()) failure_ = forwarder_->failure();
        if (!failure_.ok() && failed_ns_ == 0) failed_ns_ = world_.now_ns();
        // A kernel gives up when its host says so.
        if (failed_ns_ != 0 && failure_.error().reason != FailureReason::left) break;
        if (sent_ < at && random_() % 2 == 0 && kernel.can_send()) send(kernel);
        if (received_ < at && random_() % 2 == 0) receive(kernel);
        pause();
      }
      if (failed_ns_ != 0) break;
      // Between launches.
      forwarder_->rest();
      if (random_() % 3 == 0) world_.sleep(static_cast<std::int64_t>(random_() % 30) * ms);
    }
    if (failed_ns_ != 0) {
      link_->abort({Fault::Kind::aborted, number_});
      forwarder_->give_up();
    }
    has_all_back_ = kernel.has_all_back();
    forwarder_.reset();
    was_drained_ = link_->is_drained();
    link_.reset();
    transport_.reset();
    has_ended_ = true;
  }

  bool is_complete() const { return sent_ == messages_ && received_ == messages_ && has_all_back_; }
  bool has_ended() const { return has_ended_; }
  bool was_drained() const { return was_drained_; }
  const Status& failure() const { return failure_; }
  std::int64_t failed_ns() const { return failed_ns_; }
  const std::string& wrong() const { return wrong_; }
  std::string state() const {
    return str("end ", number_, ": ", sent_, " sent, ", received_, " received of ", messages_,
               wrong_.empty() ? "" : ", ", wrong_,
               failure_.ok() ? "" : ", " + failure_.error().describe());
  }

 private:
  using Fault = transport::Fault;
  // The last launch waits for the credits, too.
  bool is_over(const RingKernel& kernel, int at) const {
    return sent_ >= at && received_ >= at && (at < messages_ || kernel.has_all_back());
  }
  bool is_right() const { return wrong_.empty(); }
  void pause() {
    if (random_() % 8 == 0)
      world_.sleep(static_cast<std::int64_t>(random_() % 60'000));
    else
      world_.yield();
  }
  bool open() {
    transport::TransportOptions options;
    options.key.fill(std::byte{1});
    auto transport = network_.make_transport(number_, options);
    if (!transport.ok()) return fail(transport.error());
    transport_ = std::move(*transport);
    auto connection = transport_->connect({.key = {.communicator = 1},
                                           .ranks = 2,
                                           .self = number_,
                                           .peer = 1 - number_,
                                           .peer_address = str(1 - number_),
                                           .geometry = connection_geometry(ring_geometry)});
    if (!connection.ok()) return fail(connection.error());
    auto link = Link::make(ring_device(), std::move(*connection), ring_geometry);
    if (!link.ok()) return fail(link.error());
    link_ = std::move(*link);
    for (;;) {
      const auto ready = link_->ready();
      if (!ready.ok()) return fail(ready.error());
      if (*ready) break;
      world_.yield();
    }
    auto forwarder = Forwarder::make(world_);
    if (!forwarder.ok()) return fail(forwarder.error());
    forwarder_ = std::move(*forwarder);
    forwarder_->add(*link_, *transport_);
    return true;
  }
  bool fail(const Error& error) {
    failure_ = Status(Error(error));
    failed_ns_ = world_.now_ns();
    link_.reset();
    transport_.reset();
    has_ended_ = true;
    return false;
  }
  void send(RingKernel& kernel) {
    sending_ = message_of(seed_, number_, sent_);
    kernel.send(sending_.payload, sending_.tag);
    ++sent_;
  }
  void receive(RingKernel& kernel) {
    const auto tag = kernel.arrived();
    if (!tag) return;
    wanted_ = message_of(seed_, 1 - number_, received_);
    const std::uint64_t flag =
        device::flag_of(wanted_.tag, static_cast<std::uint64_t>(received_) + 1);
    pause();
    if (*tag != static_cast<std::uint32_t>(flag >> 32)) wrong_ = str("another tag");
    if (!std::ranges::equal(std::span(kernel.message(), wanted_.payload.size()), wanted_.payload))
      wrong_ = str("wrong bytes of message ", received_ + 1);
    pause();
    kernel.give_back();
    ++received_;
  }

  const std::uint64_t seed_;
  const int number_;
  const int messages_;
  sys::World& world_;
  Network& network_;
  std::mt19937_64 random_;
  std::unique_ptr<transport::Transport> transport_;
  std::unique_ptr<Link> link_;
  std::unique_ptr<Forwarder> forwarder_;
  // Not on the stack, which is never left where the process is killed.
  Message sending_;
  Message wanted_;
  int launches_ = 0;
  int sent_ = 0;
  int received_ = 0;
  bool has_all_back_ = false;
  bool was_drained_ = false;
  bool has_ended_ = false;
  Status failure_;
  std::int64_t failed_ns_ = 0;
  std::string wrong_;
};

class Play {
 public:
  explicit Play(std::uint64_t seed)
      : simulation_({.seed = seed, .min_turn_ns = 100, .max_turn_ns = 100 << seed % 6}),
        network_(simulation_, network_of(seed)) {
    for (int end = 0; end < 2; ++end) {
      simulation_.add_process(str("host", end));
      ends_[static_cast<std::size_t>(end)] = std::make_unique<End>(
          seed, end, is_sanitized ? 20 : 40, simulation_.world(end), network_);
    }
    for (int end = 0; end < 2; ++end) simulation_.start(end, [this, end] { (*this)[end].run(); });
  }
  // Calls it when process 1 asks something of its world for the n-th time.
  void strike_at(std::uint64_t nth, std::function<void()> strike) {
    simulation_.watch([this, nth, strike = std::move(strike)](int process, std::string_view) {
      if (process == 1 && ++asked_ == nth) {
        struck_ns_ = simulation_.now_ns();
        strike();
      }
    });
  }
  bool run() { return simulation_.run(100 * second); }
  // Of a process that was killed, as it stands in the middle of using it.
  void leave(int end) {
    static auto* const left = new std::vector<std::unique_ptr<End>>;
    left->push_back(std::move(ends_[static_cast<std::size_t>(end)]));
  }
  End& operator[](int end) { return *ends_[static_cast<std::size_t>(end)]; }
  sys::Simulation& simulation() { return simulation_; }
  Network& network() { return network_; }
  std::uint64_t asked() const { return asked_; }
  std::int64_t struck_ns() const { return struck_ns_; }
  std::string state() const { return ends_[0]->state() + "; " + ends_[1]->state(); }

 private:
  static transport::emulated::NetworkOptions network_of(std::uint64_t seed) {
    return {.min_latency_ns = 500,
            .max_latency_ns = 1000 << seed % 11,
            .bytes_per_second = std::int64_t{100'000'000} << seed % 8,
            .most_underway_bytes = std::size_t{4096} << seed % 5,
            .needs_progress = seed % 2 == 1,
            .puts_between_interrupts = 1 + seed % 8};
  }
  sys::Simulation simulation_;
  Network network_;
  std::array<std::unique_ptr<End>, 2> ends_;
  std::uint64_t asked_ = 0;
  std::int64_t struck_ns_ = 0;
};

constexpr std::uint64_t seeds = is_sanitized ? 8 : 40;

TEST(RingLinkSeeds, EveryMessageArrivesWholeAndInTurn) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    Play run(seed);
    EXPECT_TRUE(run.run()) << seed << ": " << run.state();
    for (int end = 0; end < 2; ++end) {
      EXPECT_TRUE(run[end].has_ended() && run[end].is_complete() && run[end].was_drained())
          << seed << ": " << run.state();
      EXPECT_EQ(run[end].wrong(), "") << seed;
    }
    EXPECT_EQ(run.network().open_ends(), 0) << seed;
    EXPECT_EQ(run.simulation().running_threads(), 0U) << seed;
    if (testing::Test::HasFailure()) return;
  }
}

TEST(RingLinkSeeds, ASeedIsTheSameRunEachTime) {
  for (const std::uint64_t seed : {3, 4}) {
    std::array<std::uint64_t, 2> hashes{};
    for (std::uint64_t& hash : hashes) {
      Play run(seed);
      EXPECT_TRUE(run.run() && run[0].is_complete());
      hash = run.simulation().trace_hash();
    }
    EXPECT_EQ(hashes[0], hashes[1]);
  }
}

// How often its thread wakes up in a second in which nothing moves.
TEST(Forwarder, RestsAsItsUserAllows) {
  sys::Simulation simulation({.seed = 1});
  simulation.add_process("host");
  int wakes = 0;
  std::vector<int> counted;
  simulation.watch([&](int, std::string_view) { ++wakes; });
  simulation.start(0, [&] {
    sys::World& world = simulation.world(0);
    auto forwarder = Forwarder::make(world);
    ASSERT_TRUE(forwarder.ok());
    for (const auto& allow :
         {&Forwarder::wake, &Forwarder::rest, &Forwarder::wake, &Forwarder::stay_near}) {
      ((**forwarder).*allow)();
      // What goes before a long rest.
      world.sleep(second);
      wakes = 0;
      world.sleep(second);
      counted.push_back(wakes);
    }
  });
  EXPECT_TRUE(simulation.run(100 * second));
  ASSERT_EQ(counted.size(), 4U);
  for (const int in_launches : {counted[0], counted[2]}) {
    EXPECT_GE(in_launches, 900);
    EXPECT_LE(in_launches, 2200);
  }
  EXPECT_LE(counted[1], 30);
  EXPECT_GE(counted[3], 15'000);
  EXPECT_LE(counted[3], 45'000);
}

// How often process 1 asks something of its world in a whole run.
std::uint64_t places_of(std::uint64_t seed) {
  Play run(seed);
  run.strike_at(0, [] {});
  EXPECT_TRUE(run.run());
  return std::max<std::uint64_t>(run.asked(), 1);
}

// It is killed, or its connections are reset: the other end says so within a second, unless it had
// all that it needed, and takes nothing wrong.
TEST(RingLinkSeeds, AnEndThatIsLostIsNamedSoon) {
  int named = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const std::uint64_t places = places_of(seed);
    Play run(seed);
    const bool is_killed = seed % 2 == 0;
    run.strike_at(1 + std::mt19937_64(seed)() % places, [&] {
      if (is_killed)
        run.network().kill(1, sys::Death::process);
      else
        run.network().reset(0, 1);
    });
    EXPECT_TRUE(run.run()) << seed << ": " << run.state();
    EXPECT_EQ(run[0].wrong(), "") << seed;
    EXPECT_TRUE(run[0].has_ended()) << seed << ": " << run.state();
    if (!run[0].failure().ok()) {
      ++named;
      EXPECT_EQ(run[0].failure().error().peer, 1) << run.state();
      EXPECT_LT(run[0].failed_ns() - run.struck_ns(), second) << seed << ": " << run.state();
    } else {
      EXPECT_TRUE(run[0].is_complete()) << seed << ": " << run.state();
    }
    if (is_killed) run.leave(1);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GE(named, static_cast<int>(seeds) / 3);
}

// A process that is stopped, or cut off, for a while holds up the other one and loses nothing.
TEST(RingLinkSeeds, WhatPassesLosesNothing) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const std::uint64_t places = places_of(seed);
    Play run(seed);
    run.strike_at(1 + std::mt19937_64(seed)() % places, [&] {
      const std::int64_t until_ns = run.simulation().now_ns() + 300 * ms;
      if (seed % 2 == 0)
        run.simulation().stop(1, until_ns);
      else
        run.simulation().cut(0, 1, until_ns);
    });
    EXPECT_TRUE(run.run()) << seed << ": " << run.state();
    for (int end = 0; end < 2; ++end)
      EXPECT_TRUE(run[end].is_complete() && run[end].has_ended() && run[end].failure().ok() &&
                  run[end].wrong().empty())
          << seed << ": " << run.state();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace unisono::test
