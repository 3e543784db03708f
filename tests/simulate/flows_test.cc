// Max-min fair rates, by hand and against their definition.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "simulate/flows.h"
#include "simulate/machines.h"

namespace unisono::simulate {
namespace {

std::map<std::uint32_t, Time> run_to_end(FlowNetwork& network) {
  std::map<std::uint32_t, Time> ends;
  while (network.has_next()) {
    EXPECT_LT(network.next_time(INT64_MAX), INT64_MAX);
    const FlowNetwork::End end = network.end_next();
    ends[end.tag] = end.time;
  }
  return ends;
}

// 1 GB/s is a byte in 1000 ps.
TEST(Flows, ALoneFlowHasTheNarrowestLink) {
  FlowNetwork network;
  const std::vector<FlowNetwork::Link> path{network.add_link(4), network.add_link(1),
                                            network.add_link(2)};
  network.start(500, 7, path, 1000, 0);
  EXPECT_EQ(run_to_end(network), (std::map<std::uint32_t, Time>{{7, 500 + 1'000'000}}));
}

TEST(Flows, ALimitHoldsWhereLinksDoNot) {
  FlowNetwork network;
  const FlowNetwork::Link link = network.add_link(4);
  network.start(0, 1, std::vector{link}, 1000, 1);
  network.start(0, 2, std::vector{link}, 3000, 0);
  EXPECT_EQ(run_to_end(network), (std::map<std::uint32_t, Time>{{1, 1'000'000}, {2, 1'000'000}}));
}

// The textbook's case: one long flow over both links, a short one on each, one link narrower.
TEST(Flows, WhatOneFlowCannotUseGoesToTheOthers) {
  FlowNetwork network;
  const FlowNetwork::Link narrow = network.add_link(1), wide = network.add_link(2);
  network.start(0, 1, std::vector{narrow, wide}, 1000, 0);
  network.start(0, 2, std::vector{narrow}, 1000, 0);
  network.start(0, 3, std::vector{wide}, 3000, 0);
  // 1/2, 1/2, 3/2 until all end at 2000 ns.
  const auto ends = run_to_end(network);
  EXPECT_NEAR(static_cast<double>(ends.at(1)), 2e6, 2);
  EXPECT_NEAR(static_cast<double>(ends.at(2)), 2e6, 2);
  EXPECT_NEAR(static_cast<double>(ends.at(3)), 2e6, 2);
}

TEST(Flows, ALateFlowSlowsTheEarlierOneFromThenOn) {
  FlowNetwork network;
  const FlowNetwork::Link link = network.add_link(1);
  network.start(0, 1, std::vector{link}, 1000, 0);
  EXPECT_EQ(network.next_time(400'000), 1'000'000);
  network.start(400'000, 2, std::vector{link}, 300, 0);
  // 600 bytes are left; the late one ends after 600 ns at half the rate, when 300 are left.
  EXPECT_EQ(run_to_end(network), (std::map<std::uint32_t, Time>{{2, 1'000'000}, {1, 1'300'000}}));
}

// On random networks, all that is sent arrives no sooner than its links allow, and in all no later
// than one after another.
TEST(Flows, KeepWithinTheirLinks) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](int most) { return static_cast<int>(random() % most); };
    FlowNetwork network;
    std::vector<double> gb_s;
    for (int i = 0; i < 10; ++i) {
      gb_s.push_back(1 + draw(9));
      network.add_link(gb_s.back());
    }
    double serial_ps = 0;
    for (std::uint32_t tag = 0; tag < 40; ++tag) {
      std::vector<FlowNetwork::Link> path;
      double narrowest = 100;
      for (FlowNetwork::Link link = 0; link < 10; ++link) {
        if (draw(4) > 0) continue;
        path.push_back(link);
        narrowest = std::min(narrowest, gb_s[link]);
      }
      if (path.empty()) continue;
      const int bytes = 1 + draw(100'000);
      serial_ps += bytes * 1000 / narrowest;
      network.start(0, tag, path, bytes, 0);
    }
    Time last = 0;
    for (const auto& [tag, time] : run_to_end(network)) last = std::max(last, time);
    EXPECT_LE(static_cast<double>(last), serial_ps + 100) << "seed " << seed;
    for (FlowNetwork::Link link = 0; link < 10; ++link)
      EXPECT_GE(static_cast<double>(last) + 100, network.bytes_over(link) * 1000 / gb_s[link])
          << "seed " << seed;
  }
}

// Two racks of two nodes each, one uplink of a NIC's bandwidth: pairs across share it.
TEST(Flows, OversubscribedUplinksSlowWhatCrossesThem) {
  Machine machine = test::cluster(4, 1, 1);
  machine.levels[0].uplinks = 2;
  const auto time = [&] {
    const auto result =
        simulate_collective(machine, test::entry(Collective::all_to_all, "direct"),
                            test::call_of(Collective::all_to_all, *place(machine, 4), 1 << 20),
                            {.model = NetworkModel::flows});
    EXPECT_TRUE(result.ok()) << result.error().message;
    return to_us(result->run.finished);
  };
  machine.levels[0].adaptive = true;
  const double full = time();
  machine.levels[0].uplinks = 1;
  const double half = time();
  EXPECT_GT(half, 1.2 * full);
  // Hashed onto two links, flows collide.
  machine.levels[0].uplinks = 2;
  machine.levels[0].adaptive = false;
  EXPECT_GT(time(), full);
}

}  // namespace
}  // namespace unisono::simulate
