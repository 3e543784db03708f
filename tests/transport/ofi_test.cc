// The transport over libfabric: what a peer may send, and what it is refused; the rest is in
// tests/conformance.

#include "transport/ofi/transport.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "conformance/harness.h"
#include "transport/ofi/providers.h"

namespace unisono::test {
namespace {

using transport::ofi::provider_of;
using transport::ofi::refusal;

Result<std::unique_ptr<Transport>> make(const TransportOptions& options) {
  return transport::ofi::make_transport(options, "tcp;ofi_rxm");
}

// Skips, with the reason, where there is no libfabric.
class Ofi : public testing::Test {
 protected:
  void SetUp() override {
    const auto made = make(Job::options(fresh_job()));
    if (!made.ok()) GTEST_SKIP() << made.error().message;
  }
  Factory factory_{"ofi", make, true};
};

// libpsm2, which libfabric may bring, takes them.
TEST_F(Ofi, SignalsStayTheProgramsOwn) {
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) {
    struct sigaction action;
    ASSERT_EQ(sigaction(number, nullptr, &action), 0);
    // Whoever started this program may have it ignore them.
    EXPECT_TRUE(action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) << number;
  }
}

TEST_F(Ofi, AProviderThatIsNotThereIsNamed) {
  const auto made = transport::ofi::make_transport(Job::options(fresh_job()), "pigeon");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().kind, ErrorKind::environment);
  EXPECT_NE(made.error().message.find("'pigeon'"), std::string::npos) << made.error().message;
}

TEST_F(Ofi, AProviderThatIsRefusedSaysWhy) {
  for (const std::string_view provider : {"sockets", "udp;ofi_rxd"}) {
    const auto made = transport::ofi::make_transport(Job::options(fresh_job()), provider);
    ASSERT_FALSE(made.ok()) << provider;
    EXPECT_EQ(made.error().kind, ErrorKind::environment);
    const std::string why(refusal(provider_of(provider), FI_VERSION(1, 17)));
    EXPECT_NE(made.error().message.find(str(provider, " is refused: ", why)), std::string::npos)
        << made.error().message;
  }
}

TEST(OfiProviders, AreUsedFromAVersionOnOrRefusedWithAReason) {
  EXPECT_EQ(refusal(provider_of("tcp;ofi_rxm"), FI_VERSION(1, 17)), "");
  EXPECT_EQ(refusal(provider_of("cxi"), FI_VERSION(1, 17)), "");
  EXPECT_EQ(refusal(provider_of("efa-direct"), FI_VERSION(2, 1)),
            "this libfabric is too old for it");
  EXPECT_EQ(refusal(provider_of("efa"), FI_VERSION(1, 20)), "");
  EXPECT_NE(refusal(provider_of("ucx"), FI_VERSION(9, 0)), "");
  EXPECT_NE(refusal(provider_of("opx"), FI_VERSION(9, 0)), "");
  // One that nobody has heard of has what was asked for.
  EXPECT_EQ(refusal(provider_of("pigeon"), FI_VERSION(1, 17)), "");
}

// ofi_rxm reads the size of the universe over every provider.
TEST(OfiProviders, AreToldOfFewerPeersOnlyWhereVerbsMayBeUsed) {
  const auto is_told = [](std::string_view name, bool has_card) {
    const auto all = transport::ofi::needed_variables(has_card);
    return std::ranges::count(all, name, &transport::ofi::Variable::name) == 1;
  };
  EXPECT_TRUE(is_told("FI_UNIVERSE_SIZE", true));
  EXPECT_FALSE(is_told("FI_UNIVERSE_SIZE", false));
  for (const bool has_card : {false, true}) {
    EXPECT_TRUE(is_told("FI_CXI_ENABLE_WRITEDATA", has_card));
    EXPECT_TRUE(is_told("FI_EFA_FORK_SAFE", has_card));
  }
}

TEST_F(Ofi, AddressesThatCannotBeAreRefused) {
  Job job(factory_, 1);
  const std::string own = job.transports[0]->address();
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    std::string address;
    if (round % 3 == 0) {
      // Bytes of any number behind the right name.
      const std::size_t end = own.find(' ') + 1;
      address = own.substr(0, end) + std::string(random_below(random, 300), 'x');
      if (address.size() == own.size()) continue;
    } else {
      address.resize(random_below(random, 100));
      for (char& byte : address) byte = static_cast<char>(random());
    }
    const auto made =
        job.transports[0]->connect({.key = {.channel = static_cast<std::uint32_t>(round)},
                                    .ranks = 2,
                                    .self = 0,
                                    .peer = 1,
                                    .peer_address = address,
                                    .geometry = {.region_bytes = 64, .signals = 1}});
    ASSERT_FALSE(made.ok());
    EXPECT_NE(made.error().message.find("the address of rank 1"), std::string::npos)
        << made.error().message;
  }
}

// Values that grow by more than an immediate can say, and signals that it cannot name.
TEST_F(Ofi, ValuesThatDoNotFitAnImmediateArriveInOrder) {
  Job job(factory_, 2);
  Pair pair(job, {.region_bytes = 4096, .signals = 200});
  std::mt19937_64 random(2);
  std::vector<std::uint64_t> values(200);
  std::uint64_t word = 0;
  for (std::uint64_t round = 1; round <= 2000; ++round) {
    const auto index = random_below(random, values.size());
    values[index] += 1 + random_below(random, round % 7 == 0 ? 1'000'000'000'000 : 70);
    word = round;
    ASSERT_TRUE(put(*pair.a, &word, sizeof word, 8, {static_cast<int>(index), values[index]}));
    ASSERT_TRUE(eventually([&] {
      EXPECT_TRUE(progress_all({pair.a.get(), pair.b.get()}).ok());
      return pair.b->signals()[index].load(std::memory_order_acquire) == values[index];
    }));
    std::uint64_t got = 0;
    std::memcpy(&got, pair.b->region() + 8, sizeof got);
    ASSERT_EQ(got, round);
  }
}

// The owner refuses a put, and gives up for another reason before its peer looks.
TEST_F(Ofi, TheFirstFaultThatIsToldCounts) {
  Job job(factory_, 2);
  auto pair = joined(job);
  std::vector<std::byte> memory(10);
  RemoteMemory wrong = must_expose(*pair->b, memory);
  ++wrong.key;
  ASSERT_TRUE(put_to(*pair->a, wrong, 0, "x", 1));
  const Error refused = until_error([&] { return pair->b->progress(); });
  EXPECT_EQ(refused.peer, 0) << refused.describe();
  pair->b->abort({Fault::Kind::failed, 5});
  for (int looks = 0; looks < 100; ++looks)
    EXPECT_EQ(until_error([&] {
                (void)pair->b->progress();
                return pair->a->progress();
              }).peer,
              0);
}

// libfabric 1.17 ends the process where a write that carries an immediate is cut off.
TEST_F(Ofi, APeerThatGoesInTheMiddleOfAWriteEndsNoOther) {
  for (const bool is_exposed : {false, true}) {
    Job job(factory_, 2);
    constexpr std::size_t bytes = 64u << 20;
    Pair pair(job, {.region_bytes = bytes, .signals = 1});
    const std::vector<std::byte> source(bytes, std::byte{7});
    std::vector<std::byte> memory(bytes);
    const RemoteMemory exposed = must_expose(*pair.b, memory);
    if (is_exposed)
      ASSERT_TRUE(put_to(*pair.a, exposed, 0, source.data(), bytes, {0, 1}));
    else
      ASSERT_TRUE(put(*pair.a, source.data(), bytes, 0, {0, 1}));
    const std::byte* there = is_exposed ? memory.data() : pair.b->region();
    ASSERT_TRUE(eventually([&] {
      EXPECT_TRUE(progress_all({pair.a.get(), pair.b.get()}).ok());
      return there[0] == std::byte{7};
    }));
    pair.a.reset();
    job.transports[0].reset();
    for (int i = 0; i < 1'000; ++i) ASSERT_TRUE(pair.b->progress().ok());
    EXPECT_EQ(pair.b->signals()[0].load(), 0u);
  }
}

TEST_F(Ofi, MemoryIsFreedWhenBothEndsHaveGone) {
  Job job(factory_, 2);
  constexpr Geometry geometry{.region_bytes = 1 << 16, .signals = 1};
  // More than there are numbers of connections.
  for (int round = 0; round < 30; ++round) {
    std::vector<Pair> pairs;
    for (std::uint32_t channel = 0; channel < 150; ++channel)
      pairs.emplace_back(job, geometry, ConnectionKey{.channel = channel});
    pairs.clear();
    ASSERT_TRUE(eventually([&] {
      job.progress();
      return true;
    }));
  }
}

// A rank may end while another one is in the middle of a put to it.
TEST_F(Ofi, ATransportMayEndInTheMiddleOfAPut) {
  constexpr std::size_t bytes = 24u << 20;
  const std::vector<std::byte> source(bytes, std::byte{7});
  for (int round = 0; round < 4; ++round) {
    Job job(factory_, 2);
    Pair pair(job, {.region_bytes = bytes, .signals = 1});
    ASSERT_TRUE(put(*pair.a, source.data(), bytes, 0, {0, 1}));
    ASSERT_TRUE(eventually([&] {
      EXPECT_TRUE(progress_all({pair.a.get(), pair.b.get()}).ok());
      return pair.b->region()[1'000] != std::byte{0};
    }));
    pair.b.reset();
    job.transports[1].reset();
    for (int i = 0; i < 50; ++i) (void)pair.a->progress();
  }
}

}  // namespace
}  // namespace unisono::test
