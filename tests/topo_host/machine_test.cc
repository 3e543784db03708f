// What is missing, malformed or hostile in a tree of device files is left out, in bounded time.

#include "topo/host/machine.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "base/str.h"
#include "support/machine_files.h"
#include "topo/host/sysfs.h"

namespace unisono::topo {
namespace {

using test::MachineFiles;

constexpr std::string_view plain =
    "node 0 0-7\n"
    "pci0000:00 node 0\n"
    " 0000:00:01.0\n"
    "  0000:01:00.0 gpu\n"
    "  0000:02:00.0 net eth0 rdma mlx5_0 gbit 200\n";

TEST(PciAddresses, AreReadAsTheKernelAndTheDriverWriteThem) {
  EXPECT_EQ(parse_pci_address("0000:53:00.0")->text(), "0000:53:00.0");
  EXPECT_EQ(parse_pci_address("00000000:0F:1F.7")->text(), "0000:0f:1f.7");
  EXPECT_EQ(parse_pci_address("10000:e0:02.0")->text(), "10000:e0:02.0");
  for (const char* const text :
       {"", "53:00.0", "0000:53:00", "0000:53:00.8", "0000:53:20.0", "0000:153:00.0",
        "0000:53:00.0x", "000000000:53:00.0", "-1:53:00.0", "0000:53:00.0\n"})
    EXPECT_FALSE(parse_pci_address(text)) << text;
}

TEST(Machines, HaveGpusAndCardsWithTheirPaths) {
  const MachineFiles files(plain);
  const Machine machine = read_machine(files.root());
  EXPECT_EQ(machine.note, "");
  ASSERT_EQ(machine.gpus.size(), 1U);
  EXPECT_EQ(machine.gpus[0].place.root, "pci0000:00");
  EXPECT_EQ(machine.gpus[0].place.path.size(), 2U);
  EXPECT_EQ(machine.gpus[0].place.node, 0);
  ASSERT_EQ(machine.cards.size(), 1U);
  const Card& card = machine.cards[0];
  EXPECT_EQ(card.interfaces, std::vector<std::string>{"eth0"});
  EXPECT_EQ(card.rdma_devices, std::vector<std::string>{"mlx5_0"});
  EXPECT_TRUE(card.is_up);
  EXPECT_EQ(card.mbit_per_second, 200'000);
  EXPECT_EQ(machine.node_of_processor(7), 0);
  EXPECT_EQ(machine.node_of_processor(8), unknown_node);
}

TEST(Machines, WithoutFilesOrWithEmptyFoldersSaySo) {
  EXPECT_EQ(read_machine("/nowhere").note,
            "there is no /nowhere, so no distance to a network card is known");
  const MachineFiles files("");
  const Machine machine = read_machine(files.root());
  EXPECT_TRUE(machine.gpus.empty() && machine.cards.empty() && machine.nodes.empty());
  EXPECT_NE(machine.note.find("has no NUMA nodes"), std::string::npos);
}

TEST(Machines, LoopsAndLinksOutOfTheTreeAreLeftOut) {
  const MachineFiles files(plain);
  files.link("class/net/loop1", "loop2");
  files.link("class/net/loop2", "loop1");
  files.link("class/net/self", ".");
  files.link("class/net/out", "/proc/self");
  files.link("class/net/up", "../../..");
  files.link("class/net/broken", "../../devices/nothing");
  files.link("bus/pci/devices/0000:09:00.0", "/proc/self");
  // It leads to a GPU that is another one.
  files.link("bus/pci/devices/0000:0a:00.0", "0000:01:00.0");
  const Machine machine = read_machine(files.root());
  EXPECT_EQ(machine.gpus.size(), 1U);
  EXPECT_EQ(machine.cards.size(), 1U);
}

TEST(Machines, AFolderBesideTheRootThatBeginsLikeItIsOutside) {
  const MachineFiles files("");
  const std::string beside = files.root().string() + "-beside";
  ASSERT_EQ(mkdir(beside.c_str(), 0700), 0);
  files.link("beside", beside);
  EXPECT_FALSE(Sysfs(files.root()).resolved("beside"));
  std::filesystem::remove(beside);
}

TEST(Machines, ValuesThatMakeNoSenseAreUnknown) {
  const MachineFiles files(plain);
  const std::string card = "devices/pci0000:00/0000:00:01.0/0000:02:00.0";
  files.write(card + "/numa_node", "99999999999999999999999999");
  files.write(card + "/net/eth0/speed", "9223372036854775807");
  files.write(card + "/infiniband/mlx5_0/ports/1/rate", "1e300 Gb/sec");
  files.write(card + "/infiniband/mlx5_0/ports/2/rate", "nan Gb/sec");
  files.write(card + "/infiniband/mlx5_0/ports/2/state", "4: ACTIVE");
  files.write("devices/system/node/node4294967296/cpulist", "0-7");
  files.write("devices/system/node/node-1/cpulist", "0-7");
  files.write("devices/system/node/node1/cpulist", std::string(100'000, '9'));
  files.write("devices/system/node/node2/cpulist", "");
  const Machine machine = read_machine(files.root());
  ASSERT_EQ(machine.cards.size(), 1U);
  EXPECT_EQ(machine.cards[0].mbit_per_second, 0);
  EXPECT_EQ(machine.cards[0].place.node, unknown_node);
  EXPECT_EQ(machine.nodes.size(), 2U);
  EXPECT_EQ(machine.node_of_processor(9), unknown_node);
}

TEST(Machines, PipesAndFoldersInPlaceOfFilesDoNotBlock) {
  const MachineFiles files(plain);
  const auto gpu = files.root() / "devices/pci0000:00/0000:00:01.0/0000:01:00.0";
  std::filesystem::remove(gpu / "vendor");
  ASSERT_EQ(mkfifo((gpu / "vendor").c_str(), 0600), 0);
  const auto card = files.root() / "devices/pci0000:00/0000:00:01.0/0000:02:00.0";
  std::filesystem::remove(card / "numa_node");
  std::filesystem::create_directory(card / "numa_node");
  const Machine machine = read_machine(files.root());
  EXPECT_TRUE(machine.gpus.empty());
  EXPECT_EQ(machine.cards.size(), 1U);
}

TEST(Machines, AFolderIsReadUpToALimit) {
  const MachineFiles files("");
  for (std::size_t i = 0; i < Sysfs::most_names + 100; ++i)
    files.link(std::filesystem::path("class/net") / str("n", i), "..");
  EXPECT_EQ(Sysfs(files.root()).names("class/net").size(), Sysfs::most_names);
}

TEST(Machines, WhatIsNoNetworkCardIsLeftOut) {
  const MachineFiles files(
      "node 0 0-7\n"
      "pci0000:00 node 0\n"
      " 0000:00:14.0 net usb0 class 0x0c0330\n"
      " 0000:00:02.0 class 0x030000\n"
      " 0000:00:03.0\n"
      "  0000:03:00.0 net eth0\n"
      "  0000:03:00.1 net virtual0 of 0000:03:00.0\n");
  files.write("devices/virtual/net/lo/operstate", "unknown");
  files.link("class/net/lo", "../../devices/virtual/net/lo");
  const Machine machine = read_machine(files.root());
  EXPECT_TRUE(machine.gpus.empty());
  ASSERT_EQ(machine.cards.size(), 1U);
  EXPECT_EQ(machine.cards[0].name(), "eth0");
}

TEST(Machines, AVirtualFunctionAloneIsACard) {
  // As in a container that has nothing else.
  const MachineFiles files(
      "node 0 0-7\n"
      "pci0000:00 node 0\n"
      " 0000:00:03.0\n"
      "  0000:03:00.0 class 0x020000\n"
      "  0000:03:00.1 net eth0 of 0000:03:00.0\n");
  const Machine machine = read_machine(files.root());
  ASSERT_EQ(machine.cards.size(), 1U);
  EXPECT_EQ(machine.cards[0].name(), "eth0");
}

TEST(Machines, CardsOfAVirtualMachineMayHaveNoPciAddress) {
  const MachineFiles files("node 0 0-7\ndevice vmbus0 net eth0\n");
  const Machine machine = read_machine(files.root());
  ASSERT_EQ(machine.cards.size(), 1U);
  EXPECT_FALSE(machine.cards[0].address);
  EXPECT_EQ(machine.cards[0].place.node, 0);
}

TEST(Machines, TheOneOfThisHostIsRead) {
  const Machine machine = read_machine("/sys");
  for (const Card& card : machine.cards) EXPECT_FALSE(card.name().empty());
}

TEST(Lists, OfProcessorsMayBeMalformed) {
  EXPECT_TRUE(list_has("0-3,8,10-11", 8));
  EXPECT_TRUE(list_has("0-3,8,10-11", 11));
  EXPECT_FALSE(list_has("0-3,8,10-11", 9));
  for (const char* const list : {"", ",", "-", "8-", "-8", "x", "9-7", "8x", "99999999999-8"})
    EXPECT_FALSE(list_has(list, 8)) << list;
}

}  // namespace
}  // namespace unisono::topo
