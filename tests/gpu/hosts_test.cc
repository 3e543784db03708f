// GPUs of several hosts: processes whose host names are set apart. On the emulated devices alone,
// as processes_test.cc.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "algorithm/algorithm.h"
#include "base/json.h"
#include "base/settings.h"
#include "base/str.h"
#include "gpu/device_copies.h"
#include "gpu/hosts.h"
#include "plan/json.h"
#include "plan/zero_copy.h"
#include "support/emulated_device.h"
#include "support/forked_ranks.h"
#include "support/gpu_cluster.h"
#include "support/places.h"
#include "support/ranks.h"

namespace unisono::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Ranks, GpuHosts, testing::Values(2, 3, 4));

TEST_P(GpuHosts, EveryCollectiveIsStaged) {
  const std::uint64_t seed = test_seed();
  const auto all = run_forked(
      GetParam(),
      [seed](Communicator& communicator) { return call_everything(communicator, seed); },
      apart(GetParam()));
  for (const Ended& ended : all) {
    EXPECT_EQ(ended.said, "");
    EXPECT_EQ(ended.exit_code, 0) << "signal " << ended.signal;
  }
}

// How many connections by which transport this rank has to ranks of its host, and to others.
struct Carried {
  int by_devices_inside = 0;
  int by_devices_outside = 0;
};

Carried carried(const Communicator& communicator) {
  Carried out;
  for (const ConnectionMemory& one : communicator.memory().connections)
    if (one.transport == "nvlink")
      ++(one.peer / 2 == communicator.rank() / 2 ? out.by_devices_inside : out.by_devices_outside);
  return out;
}

class GpuMixedHosts : public GpuHosts {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuMixedHosts, testing::Values(3, 4, 5));

TEST_P(GpuMixedHosts, EveryPlanDelivers) {
  const std::uint64_t seed = test_seed();
  const auto all = run_forked(
      GetParam(),
      [seed](Communicator& communicator) -> std::string {
        std::map<std::string, std::set<std::string>> plans_by_path;
        std::string wrong = call_every_plan(communicator, seed, plans_by_path);
        if (!wrong.empty()) return wrong;
        const std::set<std::string>& mixed = plans_by_path["mixed"];
        for (const char* wanted :
             {"hierarchical_ring_all_reduce", "hierarchical_recursive_direct_all_reduce",
              "hierarchical_ring_all_gather", "hierarchical_ring_direct_reduce_scatter",
              "direct_all_to_all"})
          if (!mixed.contains(wanted)) return str(wanted, " was not mixed");
        return mixed.contains("ring_all_reduce") ? "ring_all_reduce was mixed" : "";
      },
      apart(GetParam()));
  for (const Ended& ended : all) {
    EXPECT_EQ(ended.said, "");
    EXPECT_EQ(ended.exit_code, 0) << "signal " << ended.signal;
  }
}

TEST_P(GpuMixedHosts, DevicesOfAHostReachEachOther) {
  const auto all = run_forked(
      GetParam(),
      [](Communicator& communicator) -> std::string {
        const TestStream stream = stream_of(communicator);
        for (const Collective collective :
             {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
          const auto found = communicator.explain(collective, 1 << 20);
          if (!found.ok()) return found.error().describe();
          const bool is_said =
              found->path == "mixed" && found->thread_blocks > 0 &&
              found->note.find("Inside a node GPUs move the data") != std::string::npos;
          if (communicator.size() == 4 && !is_said) return found->text();
          // Blocks that are posted between devices which map each other's buffers: here are none.
          const Problem problem{collective, communicator.size(),  0,
                                600'001,    ReduceOperation::sum, {}};
          const std::string wrong =
              run_checked(communicator, {problem,
                                         DataType::int32,
                                         false,
                                         {.algorithm = "hierarchical_ring_direct"},
                                         1,
                                         on(stream)});
          if (!wrong.empty()) return str(name(collective), ": ", wrong);
          if (last_path(communicator) != "mixed") return last_path(communicator);
        }
        const bool is_alone =
            communicator.size() % 2 == 1 && communicator.rank() == communicator.size() - 1;
        const Carried found = carried(communicator);
        if (found.by_devices_outside > 0) return "a device reaches another host's";
        if (is_alone != (found.by_devices_inside == 0))
          return str(found.by_devices_inside, " connections by devices");
        // A call that may take no SM takes none.
        const Problem problem{
            Collective::all_gather, communicator.size(), 0, 300'001, ReduceOperation::sum, {}};
        const std::string wrong = run_checked(
            communicator,
            {problem, DataType::int32, false, {.policy = Policy::zero_sm}, 1, on(stream)});
        if (!wrong.empty()) return str("zero_sm: ", wrong);
        return last_path(communicator) == "staged" ? "" : last_path(communicator);
      },
      apart(GetParam()));
  for (const Ended& ended : all) EXPECT_EQ(ended.said, "");
}

// Of four, one waits for the rank by a kernel, one between hosts, and one for these two.
TEST_P(GpuMixedHosts, SurvivorsNameTheRankThatWasKilled) {
  expect_survivors_name_the_killed(GetParam(), apart(GetParam()), "hierarchical_ring", "mixed");
}

// All of a call is staged where hosts are not nodes of the placement, and where devices of one host
// do not reach each other.
TEST_P(GpuMixedHosts, NothingIsMixedWherePlansOrDevicesDoNotAllowIt) {
  for (const SettingValues& settings :
       {SettingValues{{"UNISONO_FLAT", "1"}}, SettingValues{{"UNISONO_GPU_PEER_ACCESS", "0"}}}) {
    const auto all = run_forked(
        GetParam(),
        [](Communicator& communicator) -> std::string {
          const TestStream stream = stream_of(communicator);
          const Problem problem{
              Collective::all_reduce, communicator.size(), 0, 4099, ReduceOperation::sum, {}};
          const std::string wrong =
              run_checked(communicator, {problem, DataType::int32, false, {}, 1, on(stream)});
          if (!wrong.empty()) return wrong;
          const Carried found = carried(communicator);
          if (found.by_devices_inside + found.by_devices_outside > 0) return "connections";
          return last_path(communicator) == "staged" ? "" : last_path(communicator);
        },
        [&](int rank, InitOptions& options) {
          apart(GetParam())(rank, options);
          options.settings.insert(options.settings.end(), settings.begin(), settings.end());
        });
    for (const Ended& ended : all) EXPECT_EQ(ended.said, "");
  }
}

// Staged, and with kernels inside hosts.
TEST_P(GpuHosts, PlacesDoNotDecideWhichPlanRuns) {
  const int ranks = GetParam();
  const auto all = run_forked(
      ranks,
      [ranks](Communicator& communicator) -> std::string {
        const TestStream stream = stream_of(communicator);
        std::vector<int> hosts;
        for (int rank = 0; rank < ranks; ++rank) hosts.push_back(ranks == 2 ? rank : rank / 2);
        constexpr std::array<std::int64_t, 2> counts{700, 3};
        for (const bool have_root : {false, true})
          for (const bool are_registered : {false, true}) {
            const PlacesTried tried = call_from_every_place(
                communicator, {.placement = topo::Placement::from_nodes(hosts).value(),
                               .have_root = have_root,
                               .are_few = true,
                               .are_registered = are_registered,
                               .run = on(stream),
                               .counts = counts});
            if (!tried.wrong.empty()) return tried.wrong;
            if (tried.calls < 12) return str(tried.calls, " calls");
          }
        return {};
      },
      apart(ranks));
  for (const Ended& ended : all) {
    EXPECT_EQ(ended.said, "");
    EXPECT_EQ(ended.exit_code, 0) << "signal " << ended.signal;
  }
}

TEST_P(GpuHosts, MessagesAreStaged) {
  const auto all = run_forked(
      GetParam(),
      [](Communicator& communicator) -> std::string {
        const TestStream stream = stream_of(communicator);
        const int next = (communicator.rank() + 1) % communicator.size();
        const int before = (communicator.rank() + communicator.size() - 1) % communicator.size();
        for (const std::size_t count : {1U, 5000U, 300'001U}) {
          std::vector<std::int32_t> sent(count, communicator.rank() + 1);
          std::vector<std::int32_t> got(count, -1);
          DeviceCopy from(stream.shared_device(), std::as_writable_bytes(std::span(sent)));
          DeviceCopy to(stream.shared_device(), std::as_writable_bytes(std::span(got)));
          if (!from.upload().ok() || !to.upload().ok()) return "upload";
          const auto elements = static_cast<std::int64_t>(count);
          const Message group[] = {{.send_data = from.device_address(sent.data()),
                                    .count = elements,
                                    .type = DataType::int32,
                                    .peer = next},
                                   {.is_send = false,
                                    .recv_data = to.device_address(got.data()),
                                    .count = elements,
                                    .type = DataType::int32,
                                    .peer = before}};
          auto work = communicator.submit(group, {.stream = stream.handle()});
          if (!work.ok()) return work.error().describe();
          Status status = work->wait();
          if (status.ok()) status = stream.synchronize();
          if (status.ok()) status = to.download();
          if (!status.ok()) return status.error().describe();
          for (const std::int32_t one : got)
            if (one != before + 1) return str(one, " from rank ", before);
        }
        return {};
      },
      apart(GetParam()));
  for (const Ended& ended : all) EXPECT_EQ(ended.said, "");
}

// No rank can map the buffers of a rank on another host.
TEST_P(GpuHosts, RegisteredPutsArriveWhereBuffersCannotBeMapped) {
  const int ranks = GetParam();
  const algorithm::Entry& entry = **algorithm::find(Collective::all_gather, "direct");
  const auto plan = algorithm::make_plan(entry, {.collective = Collective::all_gather,
                                                 .placement = topo::Placement::single_node(ranks)});
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const plan::ZeroCopy pass(*plan);
  ASSERT_GT(pass.early(), 0);
  plan::Plan puts = pass.under(plan::Reach(ranks, true));
  puts.header.name = "puts";
  const std::string text = plan::to_json(puts);
  const auto all = run_forked(
      ranks,
      [&text](Communicator& communicator) -> std::string {
        const Status registered = communicator.register_plans(std::span(&text, 1));
        if (!registered.ok()) return registered.error().describe();
        const TestStream stream = stream_of(communicator);
        for (const std::int64_t count : {1, 70'001}) {
          const Problem problem{
              Collective::all_gather, communicator.size(), 0, count, ReduceOperation::sum, {}};
          // The second call is one whose buffers peers would have mapped.
          for (const std::uint64_t seed : {1U, 2U}) {
            const std::string wrong = run_checked(
                communicator,
                {problem, DataType::float32, false, {.algorithm = "puts"}, seed, on(stream)});
            if (!wrong.empty()) return str(count, ": ", wrong);
          }
        }
        return {};
      },
      apart(ranks));
  for (const Ended& ended : all) {
    EXPECT_EQ(ended.said, "");
    EXPECT_EQ(ended.exit_code, 0) << "signal " << ended.signal;
  }
}

TEST_P(GpuHosts, AreRefusedWhereTheSettingSaysSo) {
  const auto all = run_forked(
      GetParam(), [](Communicator&) -> std::string { return "joined"; },
      [](int rank, InitOptions& options) {
        apart(GetParam())(rank, options);
        options.settings.emplace_back("UNISONO_STAGED", "0");
      });
  for (const Ended& ended : all) {
    EXPECT_NE(ended.said.find("is on another host"), std::string::npos) << ended.said;
    EXPECT_NE(ended.said.find("UNISONO_STAGED"), std::string::npos) << ended.said;
  }
}

}  // namespace
}  // namespace unisono::test
