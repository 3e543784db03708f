// Rails that end in the middle of puts, signals and gets: as long as one is left, nothing is lost
// or comes twice, and nothing lands late.

#include <deque>
#include <random>
#include <tuple>
#include <utility>

#include "conformance/harness.h"
#include "transport/cut_proxy.h"
#include "transport/socket/transport.h"

namespace unisono::test {
namespace {

constexpr std::size_t slots = 4;
constexpr std::size_t slot_bytes = std::size_t{512} << 10;
constexpr std::size_t memory_bytes = std::size_t{128} << 10;
constexpr Geometry geometry{.region_bytes = slots * slot_bytes, .signals = 2};

Factory sockets_on(std::size_t rails, sys::Protection protection) {
  const auto make = [=](TransportOptions options) {
    for (std::size_t i = 1; i < rails; ++i)
      options.rails += str(i > 1 ? "," : "", "127.0.0.", i + 1);
    options.protection = protection;
    options.protects_loopback = true;
    return transport::socket::make_transport(options);
  };
  return {"socket", make, true};
}

// Two ranks, with a network of its own between them on each rail.
class Network {
 public:
  // `lost`: nobody listens there.
  Network(std::size_t rails, sys::Protection protection, std::size_t lost = SIZE_MAX)
      : job_(sockets_on(rails, protection), 2) {
    std::string addresses = job_.transports[1]->address();
    while (!addresses.empty()) {
      const std::size_t end = std::min(addresses.find(','), addresses.size());
      proxies_.push_back(std::make_unique<CutProxy>(addresses.substr(0, end)));
      const bool is_lost = proxies_.size() - 1 == lost;
      proxied_ += str(proxied_.empty() ? "" : ",", is_lost ? nobody() : proxies_.back()->address());
      addresses.erase(0, end + 1);
    }
    std::tie(a, b) = connect(0);
  }
  // Both ends of one more connection.
  std::pair<std::unique_ptr<Connection>, std::unique_ptr<Connection>> connect(
      std::uint32_t channel) {
    auto first = connect(0, channel, proxied_);
    auto second = connect(1, channel, job_.transports[0]->address());
    EXPECT_TRUE(eventually([&] {
      job_.progress();
      const bool ready = is_ready(*first);
      return is_ready(*second) && ready;
    }));
    return {std::move(first), std::move(second)};
  }
  CutProxy& rail(std::size_t number) { return *proxies_[number]; }

  std::unique_ptr<Connection> a, b;

 private:
  std::unique_ptr<Connection> connect(int self, std::uint32_t channel,
                                      const std::string& peer_address) {
    return must(job_.transports[static_cast<std::size_t>(self)]->connect(
        {.key = {.communicator = 1, .channel = channel},
         .ranks = 2,
         .self = self,
         .peer = 1 - self,
         .peer_address = peer_address,
         .geometry = geometry}));
  }

  static std::string nobody() { return CutProxy("").address(); }

  Job job_;
  std::vector<std::unique_ptr<CutProxy>> proxies_;
  std::string proxied_;  // the second rank's addresses, as the first one knows them
};

// What one end does: it puts into the other's slots, each of which is used again once the other has
// said that it has read it, gets, and withdraws what it exposes. Both ends know the puts' seed.
class End {
 public:
  End(Connection& connection, std::uint64_t seed, std::uint64_t peer_seed, std::uint64_t puts)
      : connection_(connection),
        ours_(seed),
        theirs_(peer_seed),
        gets_random_(seed + 1),
        sent_(connection.signals()[1].load()),
        received_(connection.signals()[0].load()),
        told_(sent_),
        puts_(sent_ + puts) {
    std::mt19937_64 random(seed);
    memory_ = random_bytes(random, memory_bytes);
    exposed_ = must_expose(connection_, memory_);
  }
  ~End() { connection_.withdraw(exposed_); }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  void step(End& peer) {
    const auto status = connection_.progress();
    ASSERT_TRUE(status.ok()) << status.error().describe();
    send();
    receive();
    get(peer);
    leave_sources();
  }
  bool is_done() const {
    return sent_ == puts_ && received_ == puts_ && told_ == puts_ && sources_.empty() &&
           connection_.gets_completed() == connection_.gets_started();
  }

 private:
  struct Source {
    std::vector<std::byte> bytes;
    std::uint64_t number;
  };
  struct Get {
    std::size_t offset;
    std::vector<std::byte> destination;
    std::uint64_t number;
  };

  // Signals and short puts as often as long ones.
  static std::vector<std::byte> next_put(std::mt19937_64& random) {
    const std::size_t most = std::size_t{1} << (4 + random_below(random, 16));
    return random_bytes(random, 1 + random_below(random, std::min(most, slot_bytes)));
  }
  void send() {
    while (sent_ < puts_ && sent_ < told_ + slots) {
      if (!waiting_) waiting_ = next_put(ours_);
      const auto taken =
          connection_.try_put(waiting_->data(), waiting_->size(),
                              static_cast<std::size_t>(sent_ % slots) * slot_bytes, {0, sent_ + 1});
      ASSERT_TRUE(taken.ok()) << taken.error().describe();
      if (!*taken) return;
      sources_.push_back({std::move(*waiting_), connection_.puts_started()});
      waiting_.reset();
      ++sent_;
    }
  }
  void receive() {
    told_ = connection_.signals()[1].load(std::memory_order_acquire);
    const std::uint64_t there = connection_.signals()[0].load(std::memory_order_acquire);
    const bool news = there > received_;
    for (; received_ < there; ++received_) {
      const auto expected = next_put(theirs_);
      const std::byte* slot =
          connection_.region() + static_cast<std::size_t>(received_ % slots) * slot_bytes;
      ASSERT_TRUE(equal_bytes(slot, expected.data(), expected.size())) << "put " << received_;
    }
    if (!news) return;
    const auto taken = connection_.try_put(nullptr, 0, 0, {1, received_});
    ASSERT_TRUE(taken.ok() && *taken);
  }
  void get(End& peer) {
    while (!under_way_.empty() && connection_.gets_completed() >= under_way_.front().number) {
      const Get& get = under_way_.front();
      ASSERT_TRUE(equal_bytes(get.destination.data(), peer.memory_.data() + get.offset,
                              get.destination.size()));
      under_way_.pop_front();
    }
    // All that the peer got is there, though it may not know yet that this end knows.
    if (peer.under_way_.empty() && random_below(gets_random_, 16) == 0) {
      connection_.withdraw(exposed_);
      exposed_ = must_expose(connection_, memory_);
    }
    if (sent_ == puts_ || under_way_.size() == 4 || random_below(gets_random_, 4) != 0) return;
    const std::size_t offset = random_below(gets_random_, memory_bytes);
    const std::size_t bytes = 1 + random_below(gets_random_, memory_bytes - offset);
    under_way_.push_back({offset, std::vector<std::byte>(bytes), 0});
    Get& get = under_way_.back();
    const auto taken = connection_.try_get(peer.exposed_, offset, get.destination.data(), bytes);
    ASSERT_TRUE(taken.ok()) << taken.error().describe();
    if (*taken)
      get.number = connection_.gets_started();
    else
      under_way_.pop_back();
  }
  // A source is its owner's again when its put is complete.
  void leave_sources() {
    while (!sources_.empty() && connection_.puts_completed() >= sources_.front().number) {
      std::ranges::fill(sources_.front().bytes, std::byte{0xee});
      sources_.pop_front();
    }
  }

  Connection& connection_;
  std::mt19937_64 ours_, theirs_, gets_random_;
  // Since the connection was made, of which those before this end all came.
  std::uint64_t sent_, received_, told_;
  std::uint64_t puts_;
  std::vector<std::byte> memory_;
  RemoteMemory exposed_;
  std::optional<std::vector<std::byte>> waiting_;
  std::deque<Source> sources_;
  std::deque<Get> under_way_;
};

void run(Connection& a, Connection& b, std::uint64_t seed, std::uint64_t puts) {
  End first(a, seed, seed + 100, puts), second(b, seed + 100, seed, puts);
  EXPECT_TRUE(eventually([&] {
    first.step(second);
    second.step(first);
    return testing::Test::HasFatalFailure() || (first.is_done() && second.is_done());
  })) << "something is missing";
}

class RailLoss : public testing::TestWithParam<sys::Protection> {};

TEST_P(RailLoss, InTheMiddleOfTransfersCostsNothing) {
  for (int round = 0; round < 12; ++round) {
    const std::uint64_t seed = std::random_device{}();
    SCOPED_TRACE(str("seed ", seed));
    std::mt19937_64 random(seed);
    const std::size_t rails = 2 + random_below(random, 2);
    Network network(rails, GetParam());
    // All but one are cut, one after the other or nearly at once.
    const std::size_t left = random_below(random, rails);
    for (std::size_t rail = 0; rail < rails; ++rail)
      if (rail != left)
        network.rail(rail).cut_after(static_cast<std::int64_t>(
            random_below(random, std::size_t{1} << (8 + random_below(random, 14)))));
    run(*network.a, *network.b, seed, 60);
    if (HasFatalFailure()) return;
  }
}

// Cut at random bytes again and again, often while it is coming back. One rail is never cut.
TEST_P(RailLoss, ARailThatIsBackIsUsedAgain) {
  for (int round = 0; round < 4; ++round) {
    const std::uint64_t seed = std::random_device{}();
    SCOPED_TRACE(str("seed ", seed));
    std::mt19937_64 random(seed);
    const std::size_t rails = 2 + random_below(random, 2);
    Network network(rails, GetParam());
    const std::size_t whole = random_below(random, rails);
    for (int cut = 0; cut < 4; ++cut) {
      for (std::size_t rail = 0; rail < rails; ++rail) {
        if (rail == whole) continue;
        network.rail(rail).mend();
        network.rail(rail).cut_after(static_cast<std::int64_t>(
            random_below(random, std::size_t{1} << (5 + random_below(random, 14)))));
      }
      EXPECT_TRUE(eventually([&] {
        run(*network.a, *network.b, random(), 20);
        bool all = true;
        for (std::size_t rail = 0; rail < rails; ++rail)
          all = all && (rail == whole || network.rail(rail).is_cut());
        return all || HasFatalFailure();
      })) << "a rail is not tried again";
      if (HasFatalFailure()) return;
    }
    for (std::size_t rail = 0; rail < rails; ++rail) network.rail(rail).mend();
    EXPECT_TRUE(eventually([&] {
      std::vector<std::int64_t> before;
      for (std::size_t rail = 0; rail < rails; ++rail)
        before.push_back(network.rail(rail).forwarded());
      run(*network.a, *network.b, random(), 20);
      bool all = true;
      for (std::size_t rail = 0; rail < rails; ++rail)
        all = all && network.rail(rail).forwarded() > before[rail] + 4096;
      return all || HasFatalFailure();
    })) << "a rail is not used";
    if (HasFatalFailure()) return;
  }
}

// Connections are made when a call first needs them, which may be later.
TEST_P(RailLoss, BeforeAConnectionIsMadeLeavesItToTheOthers) {
  for (std::size_t lost = 0; lost < 2; ++lost) {
    Network network(2, GetParam(), lost);
    run(*network.a, *network.b, lost, 10);
    if (HasFatalFailure()) return;
  }
}

TEST_P(RailLoss, OfTheLastIsAnErrorThatNamesIt) {
  Network network(2, GetParam());
  for (std::size_t rail = 0; rail < 2; ++rail) network.rail(rail).cut_after(0);
  for (Connection* end : {network.a.get(), network.b.get()}) {
    const Error told = until_error([&] { return end->check_peer(); });
    EXPECT_EQ(told.kind, ErrorKind::peer);
    EXPECT_EQ(told.peer, end->peer());
    for (const char* part : {"failed: its connection from ", "; the last was rail ", " to rank ",
                             ", from 127.0.0.", " to 127.0.0.", " ("})
      EXPECT_NE(told.message.find(part), std::string::npos) << told.message;
  }
  // What was put meanwhile is lost.
  for (std::size_t rail = 0; rail < 2; ++rail) network.rail(rail).mend();
  for (Connection* end : {network.a.get(), network.b.get()})
    EXPECT_FALSE(end->check_peer().ok()) << "a connection that has ended";
}

// What the peer says last comes on the rails that are left.
TEST_P(RailLoss, BeforeAPeerLeavesIsNoFailure) {
  Network network(2, GetParam());
  network.rail(0).cut_after(0);
  run(*network.a, *network.b, 7, 20);
  ASSERT_TRUE(eventually([&] { return network.rail(0).is_cut(); }));
  network.b.reset();
  const Error told = until_error([&] { return network.a->check_peer(); });
  EXPECT_EQ(told.message.find("failed"), std::string::npos) << told.message;
}

// The peer's last bytes were on a rail that had ended, and nobody is there to give them again.
TEST_P(RailLoss, WhileAPeerLeavesIsToldAsSuch) {
  Network network(2, GetParam());
  network.rail(0).cut_after(0);
  ASSERT_TRUE(eventually([&] { return network.rail(0).is_cut(); }));
  const std::vector<std::byte> data(100);
  const auto taken = network.b->try_put(data.data(), data.size(), 0, {0, 1});
  ASSERT_TRUE(taken.ok() && *taken);
  network.b.reset();
  const Error told = until_error([&] { return network.a->check_peer(); });
  EXPECT_EQ(told.reason, FailureReason::left);
  for (const char* part : {"rank 1 left", "lost with rail 0 to rank 1, from 127.0.0.1:"})
    EXPECT_NE(told.message.find(part), std::string::npos) << told.message;
  EXPECT_EQ(network.a->signals()[0].load(), 0U);
}

// Each connection has streams there, and a rank has many connections.
TEST_P(RailLoss, IsOneWarningOfEachRank) {
  testing::internal::CaptureStderr();
  Network network(2, GetParam());
  const auto [c, d] = network.connect(1);
  network.rail(0).cut_after(0);
  EXPECT_TRUE(eventually([&] { return network.rail(0).is_cut(); }));
  run(*network.a, *network.b, 7, 20);
  run(*c, *d, 8, 20);
  const std::string told = testing::internal::GetCapturedStderr();
  std::size_t warnings = 0;
  for (std::size_t at = told.find("lost rail 0"); at != std::string::npos;
       at = told.find("lost rail 0", at + 1))
    ++warnings;
  EXPECT_EQ(warnings, 2U) << told;
}

INSTANTIATE_TEST_SUITE_P(Wires, RailLoss,
                         testing::Values(sys::Protection::none, sys::Protection::authenticate,
                                         sys::Protection::encrypt),
                         [](const auto& info) { return std::string(sys::name(info.param)); });

}  // namespace
}  // namespace unisono::test
