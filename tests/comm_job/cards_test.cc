// UNISONO_RAILS=near: which interfaces a rank's data take. The emulated driver's devices are at
// 0000:01:00.0, 0000:02:00.0 and so on.

#include "comm/job/cards.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/str.h"
#include "support/machine_files.h"

namespace unisono::comm {
namespace {

using topo::test::MachineFiles;

constexpr std::string_view two_switches =
    "node 0 0-4095\n"
    "pci0000:00 node 0\n"
    " 0000:00:01.0\n"
    "  0000:01:00.0 gpu\n"
    "  0000:11:00.0 net near0\n"
    "  0000:12:00.0 net near1\n"
    " 0000:00:02.0\n"
    "  0000:02:00.0 gpu\n"
    "  0000:21:00.0 net near2\n"
    "  0000:22:00.0 rdma without_interface\n";

// "first,others" of the options afterwards, or the error.
std::string chosen(std::string_view description, int device, std::string_view rails = near_rails) {
  const MachineFiles files(description);
  transport::TransportOptions options{.interface = "10.0.0.1", .rails = std::string(rails)};
  const Status status = choose_cards(files.root(), device, options);
  if (!status.ok()) return status.error().message;
  return str(options.interface, options.rails.empty() ? "" : ",", options.rails);
}

TEST(NearRails, AreTheInterfacesNearestToTheDevice) {
  // As many for each GPU as the one with fewest has.
  EXPECT_EQ(chosen(two_switches, 0), "near0");
  EXPECT_EQ(chosen(two_switches, 1), "near2");
}

TEST(NearRails, WithoutADeviceAreThoseOfTheNumaNode) {
  EXPECT_EQ(chosen(two_switches, -1), "near0,near1,near2");
}

TEST(NearRails, OfADeviceThatTheHostDoesNotShowAreThoseOfTheNumaNode) {
  EXPECT_EQ(chosen("node 0 0-4095\npci0000:00 node 0\n 0000:00:01.0 net eth0\n", 0), "eth0");
}

TEST(NearRails, AreNotMoreThanAConnectionHas) {
  std::string description = "node 0 0-4095\npci0000:00 node 0\n";
  for (int card = 10; card < 30; ++card)
    description += str(" 0000:00:", card, ".0 net eth", card, "\n");
  const std::string all = chosen(description, -1);
  EXPECT_EQ(std::ranges::count(all, ','), 15);
}

TEST(NearRails, ThatAreMissingAreAnError) {
  EXPECT_EQ(chosen("node 0 0-4095\n", -1),
            "UNISONO_RAILS is near, but NUMA node 0 has no network card: the host shows none");
  EXPECT_EQ(chosen("node 0 0-4095\npci0000:00 node 0\n 0000:00:01.0 net eth0 down\n", -1),
            "UNISONO_RAILS is near, but NUMA node 0 has no network card: none is up");
}

TEST(NearRails, ThatAreNotAskedForChangeNothing) {
  EXPECT_EQ(chosen(two_switches, 0, ""), "10.0.0.1");
  EXPECT_EQ(chosen(two_switches, 0, "eth1,eth2"), "10.0.0.1,eth1,eth2");
}

}  // namespace
}  // namespace unisono::comm
