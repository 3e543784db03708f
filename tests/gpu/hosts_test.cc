// GPUs of several hosts: processes whose host names are set apart. On the emulated devices alone,
// as processes_test.cc.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <functional>
#include <random>
#include <vector>

#include "algorithm/algorithm.h"
#include "base/settings.h"
#include "base/str.h"
#include "gpu/device_copies.h"
#include "plan/json.h"
#include "plan/zero_copy.h"
#include "support/emulated_device.h"
#include "support/forked_ranks.h"
#include "support/gpu_cluster.h"
#include "support/ranks.h"

namespace unisono::test {
namespace {

class GpuHosts : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (EmulatedDevice::find() == nullptr) GTEST_SKIP() << "a forked process cannot use real GPUs";
    if (geteuid() != 0) GTEST_SKIP() << "only root can set host names apart";
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuHosts, testing::Values(2, 3, 4));

// Two hosts: of one rank each, or of two and the rest.
std::function<void(int rank, InitOptions& options)> apart(int ranks) {
  return [ranks](int rank, InitOptions& options) {
    const std::string host = str("host", ranks == 2 ? rank : rank / 2);
    EXPECT_EQ(unshare(CLONE_NEWUTS), 0);
    EXPECT_EQ(sethostname(host.data(), host.size()), 0);
    options.node = host;
    options.device = rank;
  };
}

TestStream stream_of(const Communicator& communicator) {
  return TestStream(sys::cuda::Device::open(communicator.device()).value());
}

std::string call_everything(Communicator& communicator, std::uint64_t seed) {
  const TestStream stream = stream_of(communicator);
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
        Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter,
        Collective::all_to_all})
    for (const DataType type : {DataType::float32, DataType::bfloat16, DataType::int64})
      for (const std::int64_t count : {0, 1, 4099, 70'001}) {
        Problem problem{collective, communicator.size(), 0, count, ReduceOperation::sum, {}};
        if (has_root(collective)) problem.root = communicator.size() - 1;
        const bool in_place = ++seed % 2 == 0;
        const std::string wrong =
            run_checked(communicator, {problem, type, in_place, {}, seed, on(stream)});
        if (!wrong.empty())
          return str(name(collective), " of ", count, " ", name(type), ": ", wrong);
      }
  if (!communicator.barrier({.stream = stream.handle()}).ok()) return "barrier";
  const auto found = communicator.explain(Collective::all_reduce, 1 << 20);
  if (!found.ok()) return found.error().describe();
  if (found->note.find("is on another host") == std::string::npos)
    return "explained: " + found->text();
  return {};
}

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
        options.settings = {{"UNISONO_STAGED", "0"}};
      });
  for (const Ended& ended : all) {
    EXPECT_NE(ended.said.find("is on another host"), std::string::npos) << ended.said;
    EXPECT_NE(ended.said.find("UNISONO_STAGED"), std::string::npos) << ended.said;
  }
}

}  // namespace
}  // namespace unisono::test
