#include "topo/host/cards.h"

#include <gtest/gtest.h>

#include <string>

#include "base/str.h"
#include "support/machine_files.h"
#include "topo_host/published_machines.h"

namespace unisono::topo {
namespace {

using test::MachineFiles;

CardMap map_of(std::string_view description) {
  const MachineFiles files(description);
  return map_cards(read_machine(files.root()));
}

// "GPU 0000:07:00.0: PXB mlx5_0 mlx5_1", and a star behind a card that others have, too.
std::string line_of(const CardMap& map, const CardUser& user, bool with_shared) {
  std::string out = str(user.name(), ":");
  if (!user.cards.empty()) out += str(" ", name(user.cards.front().distance));
  for (const NearCard& near : user.cards)
    out += str(" ", map.machine.cards[near.card].name(), with_shared && near.users > 1 ? "*" : "");
  return out + "\n";
}

std::string lines_of(const CardMap& map, bool with_shared = false) {
  std::string out;
  for (const CardUser& user : map.gpus) out += line_of(map, user, with_shared);
  for (const CardUser& user : map.nodes) out += line_of(map, user, with_shared);
  return out;
}

class PublishedMachines : public testing::TestWithParam<test::PublishedMachine> {};

TEST_P(PublishedMachines, GiveEachGpuAndNumaNodeItsCards) {
  SCOPED_TRACE(GetParam().source);
  EXPECT_EQ(lines_of(map_of(GetParam().description)), GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(All, PublishedMachines, testing::ValuesIn(test::published_machines),
                         [](const auto& info) { return std::string(info.param.name); });

// A switch with GPUs and the cards that `cards` adds, each behind a port of its own.
std::string one_switch(int gpus, std::string_view cards) {
  std::string out = "node 0 0-7\npci0000:00 node 0\n 0000:00:01.0\n  0000:01:00.0\n";
  for (int i = 0; i < gpus; ++i) out += str("   0000:02:0", i, ".0\n    0000:1", i, ":00.0 gpu\n");
  return out + std::string(cards);
}

TEST(Cards, IdleCardsOfASwitchAreDealtOut) {
  EXPECT_EQ(lines_of(map_of(one_switch(2,
                                       "   0000:02:0a.0\n    0000:20:00.0 net a\n"
                                       "   0000:02:0b.0\n    0000:21:00.0 net b\n"
                                       "   0000:02:0c.0\n    0000:22:00.0 net c\n"
                                       "   0000:02:0d.0\n    0000:23:00.0 net d\n")),
                     true),
            "GPU 0000:10:00.0: PIX a c\n"
            "GPU 0000:11:00.0: PIX b d\n"
            "NUMA node 0: NODE a b c d\n");
}

TEST(Cards, WhatDoesNotGoRoundIsShared) {
  EXPECT_EQ(lines_of(map_of(one_switch(2,
                                       "   0000:02:0a.0\n    0000:20:00.0 net a\n"
                                       "   0000:02:0b.0\n    0000:21:00.0 net b\n"
                                       "   0000:02:0c.0\n    0000:22:00.0 net c\n")),
                     true),
            "GPU 0000:10:00.0: PIX a c*\n"
            "GPU 0000:11:00.0: PIX b c*\n"
            "NUMA node 0: NODE a b c\n");
}

TEST(Cards, PortsOfOneCardServeTwoGpus) {
  EXPECT_EQ(lines_of(map_of(one_switch(2,
                                       "   0000:02:0a.0\n    0000:20:00.0 net a\n"
                                       "    0000:20:00.1 net b\n")),
                     true),
            "GPU 0000:10:00.0: PIX a\n"
            "GPU 0000:11:00.0: PIX b\n"
            "NUMA node 0: NODE a b\n");
}

TEST(Cards, AnotherCardComesBeforeTheOtherPortOfOneThatIsTaken) {
  EXPECT_EQ(lines_of(map_of(one_switch(2,
                                       "   0000:02:0a.0\n    0000:20:00.0 net a\n"
                                       "    0000:20:00.1 net b\n"
                                       "   0000:02:0b.0\n    0000:21:00.0 net c\n")),
                     true),
            "GPU 0000:10:00.0: PIX a b*\n"
            "GPU 0000:11:00.0: PIX c b*\n"
            "NUMA node 0: NODE a b c\n");
}

TEST(Cards, AVirtualMachineWithoutSwitchesHasOneDistance) {
  EXPECT_EQ(lines_of(map_of("node 0 0-7\n"
                            "pci0000:00 node 0\n"
                            " 0000:00:03.0 net eth0 numa -1\n"
                            " 0000:00:04.0 gpu numa -1\n"
                            " 0000:00:05.0 gpu numa -1\n"
                            " 0000:00:06.0 net eth1 numa -1\n"),
                     true),
            "GPU 0000:00:04.0: PHB eth0\n"
            "GPU 0000:00:05.0: PHB eth1\n"
            "NUMA node 0: NODE eth0 eth1\n");
}

TEST(Cards, OneCardServesAllGpus) {
  const CardMap map = map_of(
      "node 0 0-7\nnode 1 8-15\n"
      "pci0000:00 node 0\n 0000:00:01.0\n  0000:01:00.0 net eth0\n"
      "pci0000:40 node 0\n 0000:40:01.0\n  0000:41:00.0 gpu\n"
      "pci0000:80 node 1\n 0000:80:01.0\n  0000:81:00.0 gpu\n");
  EXPECT_EQ(lines_of(map, true),
            "GPU 0000:41:00.0: NODE eth0*\n"
            "GPU 0000:81:00.0: SYS eth0*\n"
            "NUMA node 0: NODE eth0*\n"
            "NUMA node 1: SYS eth0*\n");
  EXPECT_EQ(describe(map, map.gpus[1]),
            "GPU 0000:81:00.0 uses eth0 (0000:01:00.0) with 1 other GPU: SYS, through another NUMA "
            "node");
}

TEST(Cards, ThoseThatAreDownOrMuchSlowerAreLeftOut) {
  EXPECT_EQ(lines_of(map_of(one_switch(1,
                                       "   0000:02:0a.0\n    0000:20:00.0 net a gbit 1\n"
                                       "   0000:02:0b.0\n    0000:21:00.0 net b gbit 100 down\n"
                                       "   0000:02:0c.0\n    0000:22:00.0 net c gbit 100\n"
                                       "   0000:02:0d.0\n    0000:23:00.0 net d gbit 25\n"))),
            "GPU 0000:10:00.0: PIX c d\n"
            "NUMA node 0: NODE c d\n");
}

TEST(Cards, AGpuWithoutASwitchDoesNotTakeTheCardOfOneThatHasIt) {
  EXPECT_EQ(lines_of(map_of("node 0 0-7\n"
                            "pci0000:00 node 0\n 0000:00:01.0\n  0000:01:00.0 gpu\n"
                            "pci0000:40 node 0\n 0000:40:01.0\n  0000:41:00.0\n"
                            "   0000:42:00.0\n    0000:43:00.0 gpu\n"
                            "   0000:42:01.0\n    0000:44:00.0 net a\n"
                            "pci0000:50 node 0\n 0000:50:01.0\n  0000:51:00.0 net b\n")),
            "GPU 0000:01:00.0: NODE b\n"
            "GPU 0000:43:00.0: PIX a\n"
            "NUMA node 0: NODE a b\n");
}

TEST(Cards, TheUserIsTheGpuOrElseTheProcessorsNumaNode) {
  const CardMap map = map_of(
      "node 0 0-7\nnode 1 8-15\n"
      "pci0000:00 node 1\n 0000:00:01.0\n  0000:01:00.0 gpu\n");
  EXPECT_EQ(map.user_of(parse_pci_address("0000:01:00.0"), 3).name(), "GPU 0000:01:00.0");
  EXPECT_EQ(map.user_of(parse_pci_address("0000:09:00.0"), 12).name(), "NUMA node 1");
  EXPECT_EQ(map.user_of(std::nullopt, 3).name(), "NUMA node 0");
  EXPECT_EQ(map.user_of(std::nullopt, 99).name(), "NUMA node 0");
  EXPECT_EQ(describe(map, map.gpus[0]),
            "GPU 0000:01:00.0 has no network card: the host shows none");
}

TEST(Cards, AllGpusHaveAsManyInCommonAsTheOneWithFewest) {
  const CardMap map = map_of(
      "node 0 0-7\n"
      "pci0000:00 node 0\n 0000:00:01.0\n  0000:01:00.0 gpu\n  0000:02:00.0 net a\n"
      "  0000:03:00.0 net b\n"
      "pci0000:40 node 0\n 0000:40:01.0\n  0000:41:00.0 gpu\n  0000:42:00.0 net c\n");
  EXPECT_EQ(map.gpus[0].cards.size(), 2U);
  EXPECT_EQ(map.common_cards(map.gpus[0]), 1U);
  EXPECT_EQ(map.common_cards(map.nodes[0]), 3U);
}

TEST(Cards, AHostWithoutFilesSaysSo) {
  const CardMap map = map_cards(read_machine("/nowhere"));
  EXPECT_EQ(describe(map, map.user_of(std::nullopt, 0)),
            "this host has no network card: there is no /nowhere, so no distance to a network card "
            "is known");
}

TEST(Cards, ADescriptionHasAllNamesOfACard) {
  const CardMap map = map_of(
      "node 0 0-7\n"
      "pci0000:00 node 0\n 0000:00:01.0\n  0000:01:00.0 gpu\n"
      "  0000:02:00.0 net ibp2s0 rdma mlx5_0\n");
  EXPECT_EQ(describe(map, map.gpus[0]),
            "GPU 0000:01:00.0 uses mlx5_0 (ibp2s0, 0000:02:00.0): PIX, through at most one PCIe "
            "switch");
}

}  // namespace
}  // namespace unisono::topo
