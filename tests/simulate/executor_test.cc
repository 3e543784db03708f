// What must hold for every plan and machine: symmetry, determinism, the path, and standstills.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "plan/builder.h"
#include "simulate/machines.h"

namespace unisono::simulate {
namespace {

struct Case {
  const algorithm::Entry* entry;
  CollectiveCall call;
  std::string text;
};

// Every algorithm on clusters of several shapes, where it can serve.
std::vector<Case> every_case(const Machine& machine, int ranks, std::int64_t count) {
  std::vector<Case> cases;
  for (const algorithm::Entry& entry : algorithm::entries()) {
    for (const int channels : {1, 2}) {
      CollectiveCall call = test::call_of(entry.collective, *place(machine, ranks), count);
      call.request.channels = channels;
      if (!entry.supports(call.request).ok()) continue;
      cases.push_back({&entry, call,
                       entry.plan_name() + ", " + std::to_string(ranks) + " ranks, " +
                           std::to_string(channels) + " channels"});
    }
  }
  return cases;
}

CollectiveResult run(const Machine& machine, const Case& one, const CollectiveOptions& options) {
  auto result = simulate_collective(machine, *one.entry, one.call, options);
  EXPECT_TRUE(result.ok()) << one.text << ": " << result.error().message;
  return result.ok() ? std::move(*result) : CollectiveResult{};
}

TEST(Collapse, GivesTheTimeOfTheFullRun) {
  for (const auto& [nodes, ranks_per_node, nics, ranks] :
       {std::tuple(1, 8, 1, 8), std::tuple(8, 1, 1, 8), std::tuple(4, 4, 2, 16),
        std::tuple(8, 2, 1, 16), std::tuple(3, 4, 4, 10)}) {
    const Machine machine = test::cluster(nodes, ranks_per_node, nics);
    // Of 5040 elements every number of chunks up to 10 is alike, of 10007 none but 1.
    for (const std::int64_t count : {16 * 5040, 10'007}) {
      int collapsed = 0;
      for (const Case& one : every_case(machine, ranks, count)) {
        const CollectiveResult full = run(machine, one, {.collapse = false});
        const CollectiveResult few = run(machine, one, {.collapse = true});
        EXPECT_EQ(few.run.finished, full.run.finished)
            << one.text << " on " << nodes << " nodes, count " << count;
        EXPECT_EQ(full.simulated_ranks, ranks);
        if (few.simulated_ranks < ranks) ++collapsed;
      }
      EXPECT_GT(collapsed, ranks == 10 ? -1 : 10) << nodes << " nodes of " << ranks_per_node;
    }
  }
}

// With two channels a block has a longer and a shorter chunk, on every rank alike.
TEST(Collapse, JoinsRanksWhoseBlocksAreCutAlike) {
  const Machine machine = log_gops_machine(64, {.latency_ns = 1000, .gap_ns_per_byte = 0.1});
  for (const char* name : {"ring", "direct"}) {
    Case one{&test::entry(Collective::all_gather, name),
             test::call_of(Collective::all_gather, *place(machine, 64), 7811), name};
    one.call.request.channels = 2;
    const CollectiveResult few = run(machine, one, {});
    EXPECT_EQ(few.simulated_ranks, 1) << name << ": " << few.not_collapsed;
    EXPECT_EQ(few.run.finished, run(machine, one, {.collapse = false}).run.finished) << name;
  }
}

// Which loops a lane's ring is written in differs from node to node.
TEST(Collapse, JoinsRanksWhoseLoopsDiffer) {
  const Machine machine = test::cluster(8, 4, 2);
  for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter}) {
    for (const char* name : {"hierarchical_ring", "hierarchical_ring_direct"}) {
      Case one{&test::entry(collective, name), test::call_of(collective, *place(machine, 32), 7811),
               name};
      one.call.request.channels = 8;
      const CollectiveResult few = run(machine, one, {});
      EXPECT_EQ(few.simulated_ranks, 4) << name << ": " << few.not_collapsed;
      EXPECT_EQ(few.run.finished, run(machine, one, {.collapse = false}).run.finished) << name;
    }
  }
}

// Where only ports are shared, also with flows; where nodes share uplinks, never.
TEST(Collapse, HoldsForFlowsInPorts) {
  for (const auto& [nodes, ranks_per_node, nics, ranks] :
       {std::tuple(1, 8, 1, 8), std::tuple(4, 4, 2, 16)}) {
    Machine machine = test::cluster(nodes, ranks_per_node, nics);
    for (Level& level : machine.levels) level.uplinks = 0;
    int collapsed = 0;
    for (const Case& one : every_case(machine, ranks, 16 * 5040)) {
      CollectiveOptions options{.model = NetworkModel::flows, .collapse = false};
      const CollectiveResult full = run(machine, one, options);
      options.collapse = true;
      const CollectiveResult few = run(machine, one, options);
      // Rates are sums in another order.
      EXPECT_NEAR(to_us(few.run.finished), to_us(full.run.finished), 1e-4) << one.text;
      if (few.simulated_ranks < ranks) ++collapsed;
    }
    EXPECT_GT(collapsed, 10) << nodes << " nodes";
  }
}

TEST(Collapse, OneRankStandsForARing) {
  const Machine machine = log_gops_machine(64, {.latency_ns = 1000});
  const auto result =
      simulate_collective(machine, test::entry(Collective::all_gather, "ring"),
                          test::call_of(Collective::all_gather, *place(machine, 64), 64), {});
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->simulated_ranks, 1);
  EXPECT_EQ(result->run.messages, 63);
}

TEST(Collapse, AHundredThousandRanksAreNoneTooMany) {
  Machine machine = test::cluster(100'000, 1, 1);
  machine.levels = {{.name = "all", .nodes = 100'000, .latency_ns = 1000}};
  for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter}) {
    const auto result =
        simulate_collective(machine, test::entry(collective, "ring"),
                            test::call_of(collective, *place(machine, 100'000), 64), {});
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result->simulated_ranks, 1);
    EXPECT_EQ(result->run.messages, 99'999);
  }
}

// One chunk a block is as large as all others, whatever its size.
TEST(Collapse, AnyCountOfWholeBlocksWillDo) {
  const Machine machine = log_gops_machine(16, {.latency_ns = 1000, .gap_ns_per_byte = 0.1});
  for (const std::int64_t count : {1, 7, 1001, 123'457}) {
    const Case one{&test::entry(Collective::all_gather, "ring"),
                   test::call_of(Collective::all_gather, *place(machine, 16), count), "ring"};
    const CollectiveResult few = run(machine, one, {});
    EXPECT_EQ(few.simulated_ranks, 1) << few.not_collapsed;
    EXPECT_EQ(few.run.finished, run(machine, one, {.collapse = false}).run.finished);
  }
}

TEST(Collapse, DoesNotJoinRanksWhoseChunksDiffer) {
  const Machine machine = log_gops_machine(8, {.latency_ns = 1000});
  const auto result =
      simulate_collective(machine, test::entry(Collective::all_reduce, "ring"),
                          test::call_of(Collective::all_reduce, *place(machine, 8), 1001), {});
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->simulated_ranks, 8);
  EXPECT_EQ(result->not_collapsed, "no two ranks do the same");
}

TEST(Path, SharesAddUpToTheTime) {
  const Machine machine = test::cluster(3, 4, 2);
  for (const NetworkModel model :
       {NetworkModel::log_gops, NetworkModel::flows, NetworkModel::alpha_beta}) {
    for (const Case& one : every_case(machine, 12, 10007)) {
      const CollectiveResult result =
          run(machine, one, {.model = model, .noise = 0.3, .explain = true});
      EXPECT_EQ(result.run.path.total(), result.run.finished) << one.text << ", " << name(model);
      if (result.run.path.last_hop == no_hop) continue;
      // The messages of the path follow each other, and each begins where the one before ended.
      std::int64_t messages = 0;
      for (std::uint32_t i = result.run.path.last_hop; i != no_hop; i = result.run.hops[i].before) {
        const Hop& hop = result.run.hops[i];
        ++messages;
        if (hop.before == no_hop) continue;
        EXPECT_LE(result.run.hops[hop.before].sent, hop.sent) << one.text;
      }
      EXPECT_EQ(messages, result.run.path.messages) << one.text;
    }
  }
}

TEST(Noise, ComesFromTheSeedAlone) {
  const Machine machine = test::cluster(4, 4, 2);
  const Case one{&test::entry(Collective::all_reduce, "ring"),
                 test::call_of(Collective::all_reduce, *place(machine, 16), 10007), "ring"};
  const auto time = [&](double noise, std::uint64_t seed) {
    return run(machine, one, {.noise = noise, .seed = seed}).run.finished;
  };
  EXPECT_EQ(time(0.5, 7), time(0.5, 7));
  EXPECT_NE(time(0.5, 7), time(0.5, 8));
  EXPECT_GT(time(0.5, 7), time(0, 7));
}

TEST(Models, MoreSharingIsNeverFaster) {
  const Machine machine = test::cluster(4, 4, 1);
  for (const Case& one : every_case(machine, 16, 100'000)) {
    const Time alone = run(machine, one, {.model = NetworkModel::alpha_beta}).run.finished;
    EXPECT_LE(alone, run(machine, one, {.model = NetworkModel::log_gops}).run.finished + 1000)
        << one.text;
  }
}

TEST(Core, ThreadBlocksOfARankTakeTurnsOnIt) {
  Machine machine = log_gops_machine(2, {.overhead_ns = 1000});
  const Case one{&test::entry(Collective::all_reduce, "ring"),
                 test::call_of(Collective::all_reduce, *place(machine, 2), 1 << 16), "ring"};
  Case wide = one;
  wide.call.request.channels = 8;
  const Time apart = run(machine, wide, {.explain = true}).run.finished;
  machine.ranks_share_core = true;
  const CollectiveResult shared = run(machine, wide, {.explain = true});
  EXPECT_EQ(apart, run(machine, one, {}).run.finished);
  EXPECT_GT(shared.run.finished, 3 * apart);
  EXPECT_EQ(shared.run.path.total(), shared.run.finished);
}

plan::Plan two_ranks(const std::function<void(plan::ProgramBuilder&, int)>& write) {
  plan::Plan plan;
  plan.header = {.name = "made_up", .collective = Collective::all_reduce, .ranks = 2};
  plan::set_blocks(plan.header);
  for (int rank = 0; rank < 2; ++rank) {
    plan::ProgramBuilder builder(rank);
    write(builder, rank);
    plan.programs.push_back(builder.take());
  }
  return plan;
}

Time time_of(const Machine& machine, const plan::Plan& plan, NetworkModel model) {
  const auto result = simulate_plan(machine, plan, *place(machine, 2), 250, DataType::float32,
                                    {.model = model, .explain = true});
  EXPECT_TRUE(result.ok()) << result.error().message;
  if (!result.ok()) return 0;
  EXPECT_EQ(result->run.path.total(), result->run.finished);
  return result->run.finished / picoseconds_per_ns;
}

// 1000 bytes at 1 ns each are there after 1099 ns; out of the slot they take 2 ns each.
TEST(Receive, TakesWholeMessagesOutOfTheirSlotsAfterwards) {
  Machine machine = log_gops_machine(2, {.latency_ns = 100, .gap_ns_per_byte = 1});
  const plan::Plan plan = two_ranks([](plan::ProgramBuilder& builder, int rank) {
    if (rank == 0)
      builder.block(0, 1, -1).send(plan::input(0));
    else
      builder.block(0, -1, 0).recv(plan::output(0));
  });
  EXPECT_EQ(time_of(machine, plan, NetworkModel::log_gops), 1099);
  machine.protocols[0].receive_gb_s = {0.5, 0.5};
  EXPECT_EQ(time_of(machine, plan, NetworkModel::log_gops), 1099 + 1998);
}

// What 1000 bytes take that rank 1 passes on to itself, so to say: it receives, and sends back.
Time time_of_return(const Machine& machine, bool reduces) {
  const plan::Plan plan = two_ranks([&](plan::ProgramBuilder& builder, int rank) {
    plan::BlockBuilder block = builder.block(0, 1 - rank, 1 - rank);
    if (rank == 0) {
      block.send(plan::input(0));
      block.recv(plan::output(0));
    } else if (reduces) {
      block.recv_reduce_copy_send(plan::input(0), plan::output(0));
    } else {
      block.recv_copy_send(plan::output(0));
    }
  });
  return time_of(machine, plan, NetworkModel::log_gops);
}

TEST(ProtocolCosts, AreInPlaceOfTheMachines) {
  const Machine plain = log_gops_machine(2, {.latency_ns = 100, .gap_ns_per_byte = 1});
  const Time there_and_back = 2 * 1099;
  EXPECT_EQ(time_of_return(plain, false), there_and_back);
  Machine machine = plain;
  machine.copy_gb_s = 1;  // of what is not sent on
  EXPECT_EQ(time_of_return(machine, false), there_and_back);
  machine.protocols[0].copy_gb_s = 0.5;
  EXPECT_EQ(time_of_return(machine, false), there_and_back + 2000);
  machine = plain;
  machine.reduce_gb_s = 1;
  EXPECT_EQ(time_of_return(machine, true), there_and_back + 1000);
  machine.protocols[0].reduce_gb_s = 0.5;
  machine.protocols[0].reduction_overhead_ns = 70;
  machine.protocols[0].copy_overhead_ns = 30;
  EXPECT_EQ(time_of_return(machine, false), there_and_back + 30);
  EXPECT_EQ(time_of_return(machine, true), there_and_back + 2000 + 70 + 30);
}

// The second thread block begins 500 ns after the first, before the port is free.
TEST(ProtocolCosts, ThreadBlocksBeginOneAfterAnother) {
  Machine machine = log_gops_machine(2, {.latency_ns = 100, .gap_ns_per_byte = 0.1});
  plan::Plan plan = two_ranks([](plan::ProgramBuilder& builder, int rank) {
    for (int channel = 0; channel < 2; ++channel) {
      plan::BlockBuilder block = builder.block(channel, rank == 0 ? 1 : -1, rank == 0 ? -1 : 0);
      if (rank == 0)
        block.send(plan::input(0));
      else
        block.recv(plan::output(0));
    }
  });
  plan.header.channels = 2;
  EXPECT_EQ(time_of(machine, plan, NetworkModel::alpha_beta), 199);
  machine.protocols[0].launch_gap_ns = 500;
  EXPECT_EQ(time_of(machine, plan, NetworkModel::alpha_beta), 699);
}

// Two thread blocks store 1000 bytes each through one port of 1 ns a byte, and then copy as much:
// the copies begin when the port has taken all.
TEST(Send, ThreadBlocksStandWhileTheirPortIsFull) {
  Machine machine = log_gops_machine(2, {.gap_ns_per_byte = 1});
  machine.copy_gb_s = 1;
  plan::Plan plan = two_ranks([](plan::ProgramBuilder& builder, int rank) {
    for (int channel = 0; channel < 2; ++channel) {
      plan::BlockBuilder block = builder.block(channel, rank == 0 ? 1 : -1, rank == 0 ? -1 : 0);
      if (rank == 0) {
        block.send(plan::input(0));
        block.copy(plan::input(0), plan::output(0));
      } else {
        block.recv(plan::output(0));
      }
    }
  });
  plan.header.channels = 2;
  EXPECT_EQ(time_of(machine, plan, NetworkModel::flows), 2000 + 1000);
}

std::string failure_of(const plan::Plan& plan) {
  const Machine machine = log_gops_machine(2, {.latency_ns = 10});
  const auto result = simulate_plan(machine, plan, *place(machine, 2), 64, DataType::float32, {});
  EXPECT_FALSE(result.ok());
  return result.ok() ? "" : result.error().message;
}

TEST(Standstill, ShowsTheCycleOfWhoWaitsForWhom) {
  const std::string message = failure_of(two_ranks([](plan::ProgramBuilder& builder, int rank) {
    plan::BlockBuilder block = builder.block(0, 1 - rank, 1 - rank);
    block.recv(plan::output(0));
    block.send(plan::input(0));
  }));
  EXPECT_NE(message.find("deadlocks with 2 thread blocks"), std::string::npos) << message;
  EXPECT_NE(message.find("rank 0, thread block 0, step 0 (recv) waits for a message from rank 1"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("rank 1, thread block 0, step 0 (recv) waits for a message from rank 0"),
            std::string::npos)
      << message;
}

TEST(Standstill, NamesAnOperationWithoutItsOtherHalf) {
  const std::string message = failure_of(two_ranks([](plan::ProgramBuilder& builder, int rank) {
    if (rank == 1) builder.block(0, -1, 0).recv(plan::output(0));
  }));
  EXPECT_NE(message.find("from rank 0 on channel 0, which sends none there"), std::string::npos)
      << message;
}

TEST(Standstill, NamesASendThatNobodyReceives) {
  const std::string message = failure_of(two_ranks([](plan::ProgramBuilder& builder, int rank) {
    if (rank == 1) return;
    plan::BlockBuilder block = builder.block(0, 1, -1);
    for (int i = 0; i < 9; ++i) block.send(plan::input(0));
  }));
  EXPECT_NE(message.find("rank 1 to free one of 8 slots on channel 0, where it receives nothing"),
            std::string::npos)
      << message;
}

// A message that is sent into free slots and never received leaves a plan wrong, too.
TEST(Standstill, FindsMessagesThatAreLeft) {
  const std::string message = failure_of(two_ranks([](plan::ProgramBuilder& builder, int rank) {
    if (rank == 0) builder.block(0, 1, -1).send(plan::input(0));
  }));
  EXPECT_NE(message.find("1 message from rank 0 to rank 1"), std::string::npos) << message;
}

TEST(Limits, StopALongRun) {
  const Machine machine = log_gops_machine(8, {.latency_ns = 10});
  const Case one{&test::entry(Collective::all_reduce, "ring"),
                 test::call_of(Collective::all_reduce, *place(machine, 8), 1 << 20), "ring"};
  const auto result =
      simulate_collective(machine, *one.entry, one.call, {.collapse = false, .max_events = 100});
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("more than 100 events"), std::string::npos);
}

// A root is done before the last rank: its next call begins then. All others wait for it in turn,
// and each call takes as long as what the busiest rank does for it.
TEST(Calls, FollowEachOtherWithoutABarrier) {
  Machine machine = log_gops_machine(5, {.latency_ns = 1000, .overhead_ns = 10});
  machine.protocols[0].launch_ns = 300;
  const Case chain{&test::entry(Collective::broadcast, "ring"),
                   test::call_of(Collective::broadcast, *place(machine, 5), 16), "ring"};
  const Time one = run(machine, chain, {}).run.finished;
  const Time many = run(machine, chain, {.calls = 11}).run.finished;
  EXPECT_EQ(one, from_ns(300 + 4 * (1000 + 2 * 10)));
  // A rank on the way receives and sends: two overheads, and its launch.
  EXPECT_EQ(many - one, 10 * from_ns(300 + 2 * 10));
  // Where each rank waits for all others there is nothing to win.
  const Case ring{&test::entry(Collective::all_gather, "ring"),
                  test::call_of(Collective::all_gather, *place(machine, 5), 16), "ring"};
  EXPECT_EQ(run(machine, ring, {.calls = 7}).run.finished, 7 * run(machine, ring, {}).run.finished);
}

TEST(Calls, AreExplainedToTheEnd) {
  const Machine machine = test::cluster(2, 4, 2);
  for (const Case& one : every_case(machine, 8, 10007)) {
    const CollectiveResult result = run(machine, one, {.explain = true, .calls = 3});
    EXPECT_EQ(result.run.path.total(), result.run.finished) << one.text;
    EXPECT_EQ(result.run.messages, 3 * run(machine, one, {}).run.messages) << one.text;
  }
}

// A shaper's bucket fills while its link is idle, and never beyond its size.
TEST(Burst, GoesOutAtOnceAfterAPause) {
  Machine machine = test::cluster(2, 1, 1);
  machine.nic_gb_s = 0.001;
  machine.nic_gap_ns = 0;
  machine.nic_burst_bytes = 50'000;
  const auto time_us = [&](double launch_ns, std::int64_t burst) {
    machine.protocols[0].launch_ns = launch_ns;
    machine.nic_burst_bytes = burst;
    const Case one{&test::entry(Collective::broadcast, "ring"),
                   test::call_of(Collective::broadcast, *place(machine, 2), 25'000), "ring"};
    return to_us(run(machine, one, {}).run.finished) - launch_ns / 1000;
  };
  // 100,000 bytes at 1 byte a nanosecond: all of it, or less what the pause has saved.
  EXPECT_NEAR(time_us(0, 50'000), 100'000, 100);
  EXPECT_NEAR(time_us(20e6, 50'000), 80'000, 100);
  EXPECT_NEAR(time_us(1e9, 50'000), 50'000, 100);
  EXPECT_NEAR(time_us(1e9, 0), 100'000, 100);
}

TEST(Use, ShowsEveryPortAndUplink) {
  Machine machine = test::cluster(4, 2, 1);
  const Case one{&test::entry(Collective::all_gather, "ring"),
                 test::call_of(Collective::all_gather, *place(machine, 8), 4096), "ring"};
  const CollectiveResult result = run(machine, one, {.model = NetworkModel::flows});
  ASSERT_EQ(result.ports.size(), 8 + 4);
  std::int64_t nics = 0;
  for (const ShownPort& port : result.ports)
    if (port.nic >= 0) nics += result.run.ports[port.port].bytes_sent;
  // Four ranks are the last of their node, and pass on all blocks but one.
  EXPECT_EQ(nics, 4 * 7 * 4096 * 4);
  double up = 0;
  for (const LinkUse& link : result.run.links) up += link.up ? link.bytes : 0;
  EXPECT_EQ(up, 2 * 7 * 4096 * 4) << "of two racks, each way once";
}

}  // namespace
}  // namespace unisono::simulate
