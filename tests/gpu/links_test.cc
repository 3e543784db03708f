// LL128 is used only over links that keep its lines whole: on emulated devices, whose links a test
// can choose.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "algorithm/algorithm.h"
#include "base/json.h"
#include "base/str.h"
#include "base/try.h"
#include "plan/text.h"
#include "support/emulated_device.h"
#include "support/forked_ranks.h"
#include "support/gpu_cluster.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using test::EmulatedDevice;
using test::run_ranks;
using test::TestStream;

// The size in bytes of an all-reduce that takes LL128 where it may.
constexpr std::int64_t elements = 256 << 10;
constexpr std::uint64_t bytes = elements * 4;

// PCIe between two devices while it exists.
class WithoutNvlink {
 public:
  WithoutNvlink(int one, int other) : one_(one), other_(other) {
    EmulatedDevice::find()->set_nvlink(one_, other_, false);
  }
  ~WithoutNvlink() { EmulatedDevice::find()->set_nvlink(one_, other_, true); }
  WithoutNvlink(const WithoutNvlink&) = delete;
  WithoutNvlink& operator=(const WithoutNvlink&) = delete;

 private:
  int one_;
  int other_;
};

class GpuLinks : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (EmulatedDevice::find() == nullptr)
      GTEST_SKIP() << "the links of real GPUs are what they are";
    ASSERT_GE(test::usable_devices().size(), static_cast<std::size_t>(GetParam()));
  }
  static test::RanksOptions options(SettingValues settings = {}) {
    return {.ranks = GetParam(),
            .device = [](int rank) { return rank; },
            .settings = std::move(settings)};
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuLinks, testing::Values(2, 4));

// Sums 1, 2, ... over the ranks on the device; what is wrong, or "".
std::string reduce(Communicator& communicator, std::int64_t count,
                   std::optional<Protocol> protocol = {}, std::string algorithm = {}) {
  const auto device = sys::cuda::Device::open(communicator.device()).value();
  const TestStream stream(device);
  auto memory = sys::cuda::Memory::allocate(device, static_cast<std::size_t>(count) * 4);
  if (!memory.ok()) return memory.error().describe();
  std::vector<std::int32_t> values(static_cast<std::size_t>(count), communicator.rank() + 1);
  const std::size_t size = values.size() * 4;
  if (const Status status = device->upload(memory->address(), values.data(), size); !status.ok())
    return status.error().describe();
  auto* const data = reinterpret_cast<void*>(memory->address());
  CallOptions options{.stream = stream.handle()};
  options.protocol = protocol;
  options.algorithm = std::move(algorithm);
  Status status =
      communicator.all_reduce(data, data, count, DataType::int32, ReduceOperation::sum, options);
  if (status.ok()) status = stream.synchronize();
  if (status.ok())
    status = device->copy(sys::cuda::address_of(values.data()), memory->address(), size);
  if (!status.ok()) return status.error().describe();
  const int ranks = communicator.size();
  for (const std::int32_t value : values)
    if (value != ranks * (ranks + 1) / 2) return "a wrong sum";
  return "";
}

struct Recorded {
  std::string protocol, path, fallback, chosen_path;
  bool operator==(const Recorded&) const = default;
};

// Of the last call on a device.
Recorded last_call(const Communicator& communicator) {
  const auto record = json::parse(communicator.dump_record());
  EXPECT_TRUE(record.ok()) << record.error().describe();
  const json::Value& entry = record->find("collectives")->array().back();
  const auto text_of = [&](std::string_view member) {
    const json::Value* const found = entry.find(member);
    return found == nullptr ? std::string() : std::string(found->string());
  };
  return {text_of("protocol"), text_of("path"), text_of("fallback"), text_of("chosen_path")};
}

Explanation explained(Communicator& communicator) {
  auto made = communicator.explain(Collective::all_reduce, bytes, {.in_place = true});
  EXPECT_TRUE(made.ok()) << made.error().describe();
  return made.ok() ? *made : Explanation{};
}

bool has_ll128(const Explanation& explanation) {
  return std::ranges::any_of(explanation.candidates, [](const PlanCandidate& one) {
    return one.protocol == Protocol::ll128;
  });
}

TEST_P(GpuLinks, NvlinkKeepsLinesWhole) {
  run_ranks(options(), [](Communicator& communicator) {
    EXPECT_EQ(reduce(communicator, elements), "");
    EXPECT_EQ(last_call(communicator), (Recorded{"ll128", "ll128_all_pairs", "", ""}));
    EXPECT_EQ(explained(communicator).protocol, Protocol::ll128);
  });
}

// One link, between the first and the last rank, decides for all: those between know it from them.
TEST_P(GpuLinks, OneLinkThatMaySplitLinesKeepsAllRanksFromLl128) {
  const WithoutNvlink pcie(0, GetParam() - 1);
  run_ranks(options(), [](Communicator& communicator) {
    for (const std::int64_t count : {std::int64_t{1}, std::int64_t{1000}, elements}) {
      EXPECT_EQ(reduce(communicator, count), "") << count;
      EXPECT_NE(last_call(communicator).protocol, "ll128") << count;
    }
    const Recorded call = last_call(communicator);
    EXPECT_EQ(call.path, "ll_all_pairs");
    EXPECT_EQ(call.fallback, "link");
    EXPECT_EQ(call.chosen_path, "ll128_all_pairs");
    // What LL128 would not have carried is no fallback.
    EXPECT_EQ(reduce(communicator, 1), "");
    EXPECT_EQ(last_call(communicator), (Recorded{"ll", "ll_all_pairs", "", ""}));
    const Explanation explanation = explained(communicator);
    EXPECT_FALSE(has_ll128(explanation));
    EXPECT_EQ(explanation.path, "ll_all_pairs");
    const std::string why =
        str("no plan in LL128: between rank 0 and rank ", communicator.size() - 1,
            " there is no NVLink, and a store of 128 bytes may arrive in parts");
    EXPECT_NE(explanation.note.find(why), std::string::npos) << explanation.note;
  });
}

TEST_P(GpuLinks, AProtocolThatCannotBeUsedIsRefused) {
  const WithoutNvlink pcie(0, 1);
  run_ranks(options(), [](Communicator& communicator) {
    const std::string said = reduce(communicator, elements, Protocol::ll128);
    EXPECT_NE(said.find("protocol ll128 cannot be used: between rank 0 and rank 1 there is no "
                        "NVLink"),
              std::string::npos)
        << said;
    EXPECT_EQ(reduce(communicator, elements, Protocol::simple), "");
    EXPECT_EQ(last_call(communicator), (Recorded{"simple", "interpreter", "", ""}));
  });
}

TEST_P(GpuLinks, ARegisteredProgramInLl128IsRefusedByName) {
  const WithoutNvlink pcie(0, 1);
  run_ranks(options(), [](Communicator& communicator) {
    algorithm::Request request{.collective = Collective::all_reduce,
                               .placement = topo::Placement::single_node(communicator.size()),
                               .in_place = true,
                               .protocol = Protocol::ll128};
    auto plan = algorithm::make_plan(**algorithm::find(Collective::all_reduce, "ring"), request);
    ASSERT_TRUE(plan.ok()) << plan.error().describe();
    plan->header.name = "mine";
    const std::string text = plan::print(*plan);
    const Status registered = communicator.register_plans({&text, 1});
    ASSERT_TRUE(registered.ok()) << registered.error().describe();
    EXPECT_EQ(reduce(communicator, elements), "");
    const std::string said = reduce(communicator, elements, {}, "mine");
    EXPECT_NE(said.find("program mine cannot run in the memory of this call: protocol ll128 cannot "
                        "be used: between rank 0 and rank 1"),
              std::string::npos)
        << said;
  });
}

TEST_P(GpuLinks, ASettingForcesOrForbidsLl128) {
  {
    const WithoutNvlink pcie(0, 1);
    run_ranks(options({{"UNISONO_GPU_LL128", "on"}}), [](Communicator& communicator) {
      EXPECT_EQ(reduce(communicator, elements), "");
      EXPECT_EQ(last_call(communicator), (Recorded{"ll128", "ll128_all_pairs", "", ""}));
    });
  }
  run_ranks(options({{"UNISONO_GPU_LL128", "off"}}), [](Communicator& communicator) {
    EXPECT_EQ(reduce(communicator, elements), "");
    EXPECT_EQ(last_call(communicator).fallback, "link");
    const Explanation explanation = explained(communicator);
    EXPECT_FALSE(has_ll128(explanation));
    EXPECT_NE(explanation.note.find("no plan in LL128: UNISONO_GPU_LL128 is off"),
              std::string::npos)
        << explanation.note;
  });
}

// As processes, which ask the management library first: it knows links between GPUs of which the
// process sees one alone.
class GpuNvml : public testing::Test {
 protected:
  void SetUp() override {
    if (EmulatedDevice::find() == nullptr) GTEST_SKIP() << "a forked process cannot use real GPUs";
  }
  // The last call's record with links as the driver and as the management library have them; where
  // `nvml` is empty, there is none.
  static void run(const char* pcie, const char* nvml, SettingValues settings_of_last,
                  const std::string& expected) {
    const auto ended = test::run_forked(
        2,
        [](Communicator& communicator) {
          if (const std::string wrong = reduce(communicator, elements); !wrong.empty())
            return wrong;
          const Recorded call = last_call(communicator);
          return call.protocol + " " + call.path;
        },
        [&](int rank, InitOptions& options) {
          setenv("UNISONO_EMULATED_PCIE", pcie, 1);
          setenv("UNISONO_EMULATED_NVML", nvml, 1);
          options.device = rank;
          if (rank == 1)
            options.settings.insert(options.settings.end(), settings_of_last.begin(),
                                    settings_of_last.end());
        });
    for (const test::Ended& rank : ended)
      EXPECT_NE(rank.said.find(expected), std::string::npos) << rank.said;
  }
};

TEST_F(GpuNvml, ItsWordCountsBeforeTheDrivers) {
  run("", "nvlink", {}, "ll128 ll128_all_pairs");
  run("0-1", "nvlink", {}, "ll128 ll128_all_pairs");
  run("", "pcie", {}, "ll ll_all_pairs");
}

TEST_F(GpuNvml, WithoutItTheDriversAtomicsTell) {
  run("", "", {}, "ll128 ll128_all_pairs");
  run("0-1", "", {}, "ll ll_all_pairs");
}

TEST_F(GpuNvml, RanksMustHaveOneSetting) {
  run("", "", {{"UNISONO_GPU_LL128", "off"}}, "its UNISONO_GPU_LL128 differ");
  run("", "", {{"UNISONO_GPU_LL128", "maybe"}},
      "UNISONO_GPU_LL128 is 'maybe'; write auto, on or off");
}

}  // namespace
}  // namespace unisono
