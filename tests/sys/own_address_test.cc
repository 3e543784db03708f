// Where a rank listens: on hosts with each kind of interface, route and name that a cluster has.
// Each host is a network namespace, which only root can make.

#include "sys/own_address.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "apart.h"
#include "base/str.h"
#include "sys/real_world.h"

namespace unisono::sys {
namespace {

// A bridge as Docker makes it: up, first of all interfaces, and no container on it.
constexpr std::string_view docker =
    "link add docker0 type bridge; addr add 172.17.0.1/16 dev docker0; link set docker0 up";
// The same with a container.
constexpr std::string_view container =
    "link add inside type veth peer name outside; link set outside master docker0; "
    "link set outside up; link set inside up";

// An interface with a carrier.
std::string connected(std::string_view name, std::string_view address) {
  return str("link add ", name, " type veth peer name ", name, "p; addr add ", address, " dev ",
             name, address.find(':') == std::string_view::npos ? "" : " nodad", "; link set ", name,
             "p up; link set ", name, " up");
}

// The kernel tells some time after a carrier has come that an interface runs, and some time before
// nothing of either. Both ends of what connected() makes run in the end.
constexpr std::string_view until_all_run =
    "; for look in $(seq 1000); do"
    " ip -o link show | grep LOWER_UP | grep -q 'state DOWN' ||"
    " ip -o link show | grep -E '[0-9]p[@:]' | grep -qv 'state UP' || exit 0;"
    " sleep 0.01; done; exit 1";

// Runs commands of ip(8), separated by ';'.
bool configure(std::string_view commands) {
  std::string line = "exec 2>/dev/null; set -e; ip link set lo up";
  for (std::size_t begin = 0; begin < commands.size();) {
    const std::size_t end = std::min(commands.find(';', begin), commands.size());
    line += str("; ip ", commands.substr(begin, end - begin));
    begin = end + 1;
  }
  line += until_all_run;
  return std::system(line.c_str()) == 0;
}

struct Host {
  std::string_view name;
  std::string network;
  std::string_view towards;
  std::string_view expected;
  bool is_certain = true;
};

class OwnAddress : public testing::TestWithParam<Host> {};

TEST_P(OwnAddress, IsOneThatOtherHostsReach) {
  const Host& host = GetParam();
  const std::string said = said_apart(CLONE_NEWNET, [&]() -> std::string {
    unsetenv("MASTER_ADDR");
    if (!configure(host.network)) return "no namespace";
    const auto found = find_own_address(host.towards);
    auto world = RealWorld::create();
    if (!world.ok()) return world.error().message;
    auto listener = (*world)->listen({found.host, 0});
    if (!listener.ok()) return listener.error().message;
    return str((*listener)->address().host, found.is_certain ? "" : " perhaps");
  });
  if (said == "no namespace") GTEST_SKIP() << said;
  EXPECT_EQ(said, str(host.expected, host.is_certain ? "" : " perhaps"));
}

const std::string e0 = connected("e0", "10.1.0.5/24");
const std::string two = str(e0, "; ", connected("e1", "10.2.0.5/24"));

INSTANTIATE_TEST_SUITE_P(
    Hosts, OwnAddress,
    testing::Values(
        Host{"a_bridge_before_the_network", str(docker, "; ", e0), "", "10.1.0.5", false},
        Host{"a_bridge_with_a_container", str(docker, "; ", container, "; ", e0), "", "10.1.0.5",
             false},
        Host{"a_bridge_and_a_rendezvous", str(docker, "; ", e0), "10.1.0.9", "10.1.0.5"},
        Host{"a_bridge_and_a_default_route",
             str(docker, "; ", e0, "; route add default via 10.1.0.1"), "", "10.1.0.5"},
        Host{"a_bridge_alone", std::string(docker), "", "172.17.0.1"},
        Host{"the_rendezvous_itself", str(docker, "; ", e0), "10.1.0.5", "10.1.0.5"},
        Host{"IPv6_alone", connected("e0", "fd00::5/64"), "", "fd00::5"},
        Host{"IPv6_and_a_bridge", str(docker, "; ", connected("e0", "fd00::5/64")), "", "fd00::5",
             false},
        Host{"IPv6_and_a_rendezvous", str(docker, "; ", connected("e0", "fd00::5/64")), "fd00::9",
             "fd00::5"},
        Host{"several_interfaces", two, "", "10.1.0.5", false},
        Host{"several_interfaces_and_a_rendezvous", two, "10.2.0.9", "10.2.0.5"},
        Host{"several_interfaces_and_a_default_route", str(two, "; route add default via 10.2.0.1"),
             "", "10.2.0.5"},
        Host{"an_interface_without_a_carrier",
             "link add e0 type veth peer name p0; addr add 10.3.0.5/24 dev e0; link set e0 up; " +
                 connected("e1", "10.1.0.5/24"),
             "", "10.1.0.5", false},
        Host{"a_rendezvous_that_no_route_leads_to", e0, "10.9.0.1", "10.1.0.5"},
        Host{"a_rendezvous_on_this_host_alone", str(docker, "; ", e0), "127.0.0.1", "127.0.0.1"},
        Host{"an_address_that_no_cable_has",
             str(docker, "; ", container, "; addr add 10.9.0.5/32 dev lo; ",
                 connected("e0", "fe80::5/64")),
             "", "10.9.0.5", false},
        Host{"an_address_that_no_cable_has_beside_a_network",
             str("addr add 10.9.0.5/32 dev lo; ", e0), "", "10.1.0.5", false},
        Host{"loopback_alone", "link set lo up", "", "127.0.0.1", false}),
    [](const auto& info) { return std::string(info.param.name); });

// Gives this process's host a name and a file of names.
bool give_name(const std::string& name, std::string_view names) {
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("tmpfs", "/tmp", "tmpfs", 0, nullptr) != 0)
    return false;
  const std::string file = "/tmp/hosts";
  std::ofstream(file) << names;
  return mount(file.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) == 0 &&
         sethostname(name.data(), name.size()) == 0;
}

// Debian gives a host's name 127.0.1.1, where other hosts find it at another address.
TEST(OwnName, IsNoLoopbackAddress) {
  const std::string said =
      said_apart(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS, [&]() -> std::string {
        unsetenv("MASTER_ADDR");
        if (!configure(str(docker, "; ", e0)) ||
            !give_name("node0",
                       "127.0.0.1 localhost\n127.0.1.1 node0.cluster node0\n10.1.0.9 node1\n"))
          return "no namespace";
        std::string out;
        for (const char* const towards : {"node0", "node0.cluster", "node1", "localhost"})
          out += str(find_own_address(towards).host, " ");
        auto world = RealWorld::create();
        if (!world.ok()) return world.error().message;
        auto listener = (*world)->listen({"node0", 0});
        if (!listener.ok()) return listener.error().message;
        const Address where{"node0", (*listener)->address().port};
        const auto connected = (*world)->run((*world)->connect(where, no_deadline_ns));
        return str(out, (*listener)->address().host, connected.ok() ? "" : " refused");
      });
  if (said == "no namespace") GTEST_SKIP() << said;
  EXPECT_EQ(said, "10.1.0.5 10.1.0.5 10.1.0.5 127.0.0.1 10.1.0.5");
}

TEST(OwnAddressOfALauncher, LeadsToItsMaster) {
  const std::string said = said_apart(CLONE_NEWNET, []() -> std::string {
    if (!configure(two)) return "no namespace";
    setenv("MASTER_ADDR", "10.2.0.9", 1);
    std::string out = str(find_own_address().host, " ", find_own_address("10.1.0.9").host);
    // Other ranks may be on other hosts all the same.
    setenv("MASTER_ADDR", "localhost", 1);
    return str(out, " ", find_own_address().host);
  });
  if (said == "no namespace") GTEST_SKIP() << said;
  EXPECT_EQ(said, "10.2.0.5 10.1.0.5 10.1.0.5");
}

}  // namespace
}  // namespace unisono::sys
