// Collectives of GPUs on several hosts whose kernels exchange messages over ring links.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "base/str.h"
#include "gpu/device_copies.h"
#include "gpu/hosts.h"
#include "gpu/sums_in_graphs.h"
#include "support/ranks.h"

namespace unisono::test {
namespace {

// Hosts apart, with ring links and what else the settings say.
std::function<void(int rank, InitOptions& options)> apart_by_rings(
    int ranks, const SettingValues& settings = {}) {
  return [place = apart(ranks), settings](int rank, InitOptions& options) {
    place(rank, options);
    options.settings = settings;
    options.settings.emplace_back("UNISONO_GPU_RING_LINKS", "on");
  };
}

class GpuRingHosts : public GpuHosts {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuRingHosts, testing::Values(2, 3, 4));

// Messages between hosts go over ring links alone, those inside hosts over links between devices.
std::string check_links(const Communicator& communicator) {
  int rings = 0;
  for (const ConnectionMemory& one : communicator.memory().connections) {
    const bool is_inside = communicator.size() > 2 && one.peer / 2 == communicator.rank() / 2;
    if (one.transport == "nvlink" && !is_inside) return str("nvlink to rank ", one.peer);
    if (one.transport != "ring") continue;
    if (is_inside) return str("a ring link to rank ", one.peer);
    ++rings;
  }
  return rings > 0 ? "" : "no ring links";
}

TEST_P(GpuRingHosts, KernelsRunEveryCollective) {
  const std::uint64_t seed = test_seed();
  const auto all = run_forked(
      GetParam(),
      [seed](Communicator& communicator) {
        const std::string wrong = call_everything(communicator, seed);
        return wrong.empty() ? check_links(communicator) : wrong;
      },
      apart_by_rings(GetParam()));
  for (const Ended& ended : all) {
    EXPECT_EQ(ended.said, "");
    EXPECT_EQ(ended.exit_code, 0) << "signal " << ended.signal;
  }
}

TEST_P(GpuRingHosts, KernelsRunEveryPlan) {
  const std::uint64_t seed = test_seed();
  const auto all = run_forked(
      GetParam(),
      [seed](Communicator& communicator) -> std::string {
        std::map<std::string, std::set<std::string>> plans_by_path;
        std::string wrong = call_every_plan(communicator, seed, plans_by_path);
        if (!wrong.empty()) return wrong;
        for (const auto& [path, plans] : plans_by_path)
          if (path != "interpreter") return str(*plans.begin(), " took the path ", path);
        return check_links(communicator);
      },
      apart_by_rings(GetParam()));
  for (const Ended& ended : all) {
    EXPECT_EQ(ended.said, "");
    EXPECT_EQ(ended.exit_code, 0) << "signal " << ended.signal;
  }
}

// Messages that fill many slots, so that kernels wait for credits, and ring links between all
// ranks, as where no device reaches another.
TEST_P(GpuRingHosts, SlotsGoRoundAndEveryLinkMayBeARing) {
  const int ranks = GetParam();
  for (const SettingValues& settings :
       {SettingValues{{"UNISONO_GPU_SLOTS", "2"}, {"UNISONO_GPU_SLOT_BYTES", "4096"}},
        SettingValues{{"UNISONO_GPU_PEER_ACCESS", "0"}}}) {
    const auto all = run_forked(
        ranks,
        [](Communicator& communicator) -> std::string {
          const TestStream stream = stream_of(communicator);
          for (const std::int64_t count : {40'009, 3}) {
            const Problem problem{
                Collective::all_reduce, communicator.size(), 0, count, ReduceOperation::sum, {}};
            const std::string wrong =
                run_checked(communicator, {problem, DataType::int64, count > 3, {}, 1, on(stream)});
            if (!wrong.empty()) return wrong;
          }
          return last_path(communicator) == "interpreter" ? "" : last_path(communicator);
        },
        apart_by_rings(ranks, settings));
    for (const Ended& ended : all) EXPECT_EQ(ended.said, "") << settings.front().first;
  }
}

// A graph of a barrier and two all-reduces, one of which is called there first: replayed on new
// data, with calls between, after a pause, and destroyed while it runs.
TEST_P(GpuRingHosts, GraphsReplayOnNewData) {
  const auto all = run_forked(
      GetParam(),
      [](Communicator& communicator) -> std::string {
        const auto device = sys::cuda::Device::open(communicator.device()).value();
        Sums known(communicator, device, 70'001);
        known.fill(1);
        known.call();
        known.expect_sums();
        // Its links are made in the capture.
        Sums fresh(communicator.split(0, 0).value(), device, 5);
        auto graph = std::make_unique<Graph>(known.stream(), Graph::global);
        graph->fork(fresh.stream());
        known.call();
        if (!communicator.barrier({.stream = known.stream().handle()}).ok()) return "barrier";
        fresh.call();
        graph->join(fresh.stream());
        graph->end();
        for (int round = 2; round < 8; ++round) {
          known.fill(static_cast<float>(round));
          fresh.fill(static_cast<float>(10 * round));
          // Until the thread that forwards rests.
          if (round == 4) std::this_thread::sleep_for(std::chrono::milliseconds(20));
          graph->launch();
          if (round == 7) graph.reset();
          known.expect_sums();
          fresh.expect_sums();
          if (round % 2 == 0) continue;
          known.fill(static_cast<float>(-round));
          known.call();
          known.expect_sums();
        }
        if (testing::Test::HasFailure()) return "wrong sums";
        if (!communicator.barrier().ok()) return "barrier";
        // One of three ranks may exchange messages inside its host alone.
        return communicator.size() == 3 ? "" : check_links(communicator);
      },
      apart_by_rings(GetParam()));
  for (const Ended& ended : all) {
    EXPECT_EQ(ended.said, "");
    EXPECT_EQ(ended.exit_code, 0) << "signal " << ended.signal;
  }
}

// What goes through host memory though kernels could carry it.
TEST_P(GpuRingHosts, CallsWithoutSmsAreNotCaptured) {
  const auto all = run_forked(
      GetParam(),
      [](Communicator& communicator) -> std::string {
        const TestStream stream = stream_of(communicator);
        const auto memory = sys::cuda::Memory::allocate(stream.shared_device(), 64).value();
        void* const data = reinterpret_cast<void*>(memory.address());
        const CallOptions without_sms{.stream = stream.handle(), .policy = Policy::zero_sm};
        Graph graph(stream, Graph::global);
        const Status sent =
            communicator.send(data, 1, DataType::int32, 1 - communicator.rank() % 2, without_sms);
        const Status copied =
            communicator.broadcast(data, data, 1, DataType::int32, 0, without_sms);
        graph.end();
        for (const Status* status : {&sent, &copied}) {
          const std::string said = status->ok() ? "captured" : status->error().describe();
          if (said.find("cannot be captured into a CUDA graph") == std::string::npos) return said;
        }
        return {};
      },
      apart_by_rings(GetParam()));
  for (const Ended& ended : all) EXPECT_EQ(ended.said, "");
}

TEST_P(GpuRingHosts, SurvivorsNameTheRankThatWasKilled) {
  expect_survivors_name_the_killed(GetParam(), apart_by_rings(GetParam()), "ring", "interpreter");
}

TEST_P(GpuRingHosts, AreTheDefaultWhereEachNodeHasOneRank) {
  const int ranks = GetParam();
  const auto all = run_forked(
      ranks,
      [](Communicator& communicator) -> std::string {
        const TestStream stream = stream_of(communicator);
        const Problem problem{
            Collective::all_reduce, communicator.size(), 0, 4099, ReduceOperation::sum, {}};
        const std::string wrong =
            run_checked(communicator, {problem, DataType::int32, false, {}, 1, on(stream)});
        return wrong.empty() ? last_path(communicator) : wrong;
      },
      [ranks](int rank, InitOptions& options) {
        apart(ranks)(rank, options);
        options.settings.clear();
      });
  for (const Ended& ended : all) EXPECT_EQ(ended.said == "interpreter", ranks == 2) << ended.said;
}

// A protocol that is forced, for calls inside nodes say, runs in Simple between hosts.
TEST_P(GpuRingHosts, PlansOfEachProtocolRun) {
  const auto all = run_forked(
      GetParam(),
      [](Communicator& communicator) -> std::string {
        const TestStream stream = stream_of(communicator);
        for (const Protocol protocol : {Protocol::ll, Protocol::ll128, Protocol::simple}) {
          const Problem problem{
              Collective::all_reduce, communicator.size(), 0, 40'009, ReduceOperation::sum, {}};
          const std::string wrong =
              run_checked(communicator, {problem,
                                         DataType::int32,
                                         true,
                                         {.algorithm = "ring", .protocol = protocol},
                                         1,
                                         on(stream)});
          if (!wrong.empty()) return str(name(protocol), ": ", wrong);
          if (last_path(communicator) != "interpreter") return last_path(communicator);
          const auto found = communicator.explain(Collective::all_reduce, 1 << 20,
                                                  {.options = {.protocol = protocol}});
          if (!found.ok()) return found.error().describe();
          const bool says_so = found->note.find("in protocol simple") != std::string::npos;
          if (says_so == (protocol == Protocol::simple)) return found->note;
        }
        return check_links(communicator);
      },
      apart_by_rings(GetParam()));
  for (const Ended& ended : all) EXPECT_EQ(ended.said, "");
}

TEST_P(GpuRingHosts, AreMisuseWhereTheSettingIsNoneOfThem) {
  const auto all = run_forked(
      GetParam(), [](Communicator&) -> std::string { return "joined"; },
      [](int rank, InitOptions& options) {
        apart(GetParam())(rank, options);
        options.settings = {{"UNISONO_GPU_RING_LINKS", "maybe"}};
      });
  for (const Ended& ended : all)
    EXPECT_NE(ended.said.find("'maybe'; write auto, on or off"), std::string::npos) << ended.said;
}

TEST_P(GpuRingHosts, AreMisuseWhereOneRankAloneHasThem) {
  const auto all = run_forked(
      GetParam(),
      [](Communicator& communicator) -> std::string {
        const TestStream stream = stream_of(communicator);
        const Problem problem{
            Collective::all_reduce, communicator.size(), 0, 5, ReduceOperation::sum, {}};
        return run_checked(communicator, {problem, DataType::int32, false, {}, 1, on(stream)});
      },
      [](int rank, InitOptions& options) {
        rank == 0 ? apart_by_rings(GetParam())(rank, options) : apart(GetParam())(rank, options);
      });
  for (const Ended& ended : all)
    EXPECT_NE(ended.said.find("UNISONO_GPU_RING_LINKS"), std::string::npos) << ended.said;
}

}  // namespace
}  // namespace unisono::test
