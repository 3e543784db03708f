// Two rails, which on one host are two addresses of the loopback network.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <set>

#include "conformance/harness.h"
#include "transport/socket/rails.h"
#include "transport/socket/transport.h"

namespace unisono::test {
namespace {

constexpr Geometry geometry{.region_bytes = std::size_t{1} << 20, .signals = 1};

Factory sockets_on(const std::string& rails) {
  const auto make = [rails](TransportOptions options) {
    options.rails = rails;
    return transport::socket::make_transport(options);
  };
  return {"socket", make, true};
}

// Local addresses of this process's TCP streams that are joined.
std::multiset<std::string> stream_addresses() {
  std::multiset<std::string> out;
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    sockaddr_in here{};
    sockaddr_in there{};
    socklen_t bytes = sizeof here;
    if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&there), &bytes) != 0) continue;
    bytes = sizeof here;
    if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&here), &bytes) != 0) continue;
    if (here.sin_family == AF_INET) out.insert(inet_ntoa(there.sin_addr));
  }
  return out;
}

TEST(SocketRails, AConnectionHasAStreamOnEachAndPutsArriveWhole) {
  Job job(sockets_on("127.0.0.2"), 2);
  const auto addresses = transport::socket::read_addresses(job.transports[0]->address());
  ASSERT_TRUE(addresses.ok());
  ASSERT_EQ(addresses->size(), 2u);
  const auto before = stream_addresses();
  Pair pair(job, geometry);
  const auto after = stream_addresses();
  EXPECT_GT(after.count("127.0.0.1"), before.count("127.0.0.1"));
  EXPECT_GT(after.count("127.0.0.2"), before.count("127.0.0.2"));

  std::mt19937 random(std::random_device{}());
  std::uint64_t value = 0;
  // One frame; pieces on both rails; a ragged last line.
  for (const std::size_t bytes : {std::size_t{9}, std::size_t{40'000}, std::size_t{777'777}}) {
    std::vector<std::byte> data(bytes);
    for (std::byte& byte : data) byte = static_cast<std::byte>(random());
    ASSERT_TRUE(put(*pair.a, data.data(), bytes, 100, {0, ++value}));
    ASSERT_TRUE(eventually([&] {
      EXPECT_TRUE(progress_all({pair.a.get(), pair.b.get()}).ok());
      return pair.b->signals()[0].load(std::memory_order_acquire) == value;
    }));
    EXPECT_EQ(std::memcmp(pair.b->region() + 100, data.data(), bytes), 0) << bytes << " bytes";
  }
}

TEST(SocketRails, TooManyAreRefusedWithTheirNumber) {
  std::string many;
  for (int rail = 0; rail < 17; ++rail) many += str(rail > 0 ? "," : "", "127.0.0.", rail + 2);
  const auto made = sockets_on(many).make(Job::options(fresh_job()));
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("17"), std::string::npos) << made.error().message;
}

// Both ends find it, before either waits for streams that the other does not make.
TEST(SocketRails, AnotherNumberThanThePeersIsRefusedWithBothLists) {
  const std::string secret = fresh_job();
  auto first = sockets_on("127.0.0.2,127.0.0.3").make(Job::options(secret));
  auto second = sockets_on("127.0.0.2").make(Job::options(secret));
  ASSERT_TRUE(first.ok() && second.ok());
  for (int rank = 0; rank < 2; ++rank) {
    Transport& own = rank == 0 ? **first : **second;
    const std::string peer = (rank == 0 ? **second : **first).address();
    const auto made = own.connect({.key = {.communicator = 1},
                                   .ranks = 2,
                                   .self = rank,
                                   .peer = 1 - rank,
                                   .peer_address = peer,
                                   .geometry = geometry});
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().kind, ErrorKind::misuse);
    EXPECT_EQ(made.error().message,
              str("rank ", 1 - rank, " has ", 3 - (1 - rank), " rails (", peer, ") and this rank ",
                  3 - rank, " (", own.address(),
                  "); UNISONO_INTERFACE and UNISONO_RAILS must name the same networks, in the same "
                  "order, on all ranks"));
  }
}

// Nobody reaches a rank by the address that stands for all of them.
TEST(SocketRails, AllInterfacesAtOnceAreRefused) {
  for (const char* all : {"0.0.0.0", "::"}) {
    TransportOptions options = Job::options(fresh_job());
    options.interface = all;
    const auto made = transport::socket::make_transport(options);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().message, str("cannot listen on ", all,
                                        ", which is every interface; name the address that the "
                                        "other ranks use to reach this one"));
  }
}

TEST(SocketRails, APeersAddressesAreOneToSixteen) {
  const auto count_of = [](std::size_t count) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) text += str(i > 0 ? "," : "", "127.0.0.1:", i + 1);
    const auto read = transport::socket::read_addresses(text);
    return read.ok() ? read->size() : 0;
  };
  for (const std::size_t count : {1, 2, 16}) EXPECT_EQ(count_of(count), count);
  for (const std::size_t count : {0, 17}) EXPECT_EQ(count_of(count), 0U);
  EXPECT_EQ(transport::socket::read_addresses("").error().message,
            "'' has 0 addresses; a peer has 1 to 16");
  EXPECT_FALSE(transport::socket::read_addresses("127.0.0.1:1,nowhere").ok());
}

}  // namespace
}  // namespace unisono::test
