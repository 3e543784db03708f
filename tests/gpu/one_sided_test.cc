// Registered plans of put, signal, wait and barrier on CUDA streams, beside the host engine: the
// same bits. Threads as ranks, one on each device.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "algorithm/algorithm.h"
#include "base/settings.h"
#include "base/str.h"
#include "plan/json.h"
#include "plan/text.h"
#include "plan/zero_copy.h"
#include "support/eventually.h"
#include "support/gpu_cluster.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using sys::cuda::Memory;
using test::run_ranks;
using test::TestStream;
using test::usable_devices;

constexpr int ranks = 3;

// Ranks 1 and 2 put into rank 0's scratch once it says that they may, though in rank 0's memory
// nothing is in their way; its sum goes back by puts, after all of its thread blocks have met.
constexpr std::string_view star = R"(plan star_of_puts version 1
collective all_reduce ranks 3
protocol simple channels 1 in_place no
chunks 2 input_blocks 1 output_blocks 1
bytes 0..

rank 0 scratch 2
  block 0 channel 0 send 1 recv 1
    signal
    wait
    barrier
    barrier
    put output[0] -> output[0] x2
    signal
  block 1 channel 0 send 2 recv 2
    signal
    wait
    barrier
    barrier
    put output[0] -> output[0]
    put output[1] -> output[1]
    signal
  block 2 channel 0
    copy input[0] -> output[0] x2
    barrier
    reduce scratch[0] -> output[0] x2
    reduce scratch[2] -> output[0] x2
    barrier

rank 1
  block 0 channel 0 send 0 recv 0
    wait
    put input[0] -> scratch[0] x2
    signal
    wait

rank 2
  block 0 channel 0 send 0 recv 0
    wait
    put input[0] -> scratch[2]
    put input[1] -> scratch[3]
    signal
    wait
)";

// Built-in plans, all of whose messages that may be put are put.
std::vector<std::string> plans(Protocol protocol) {
  std::vector<std::string> out;
  auto specialised = plan::parse(star);
  EXPECT_TRUE(specialised.ok()) << specialised.error().message;
  specialised->header.max_step_count = 2;
  specialised->header.protocol = protocol;
  out.push_back(plan::to_json(*specialised));
  for (const auto& [collective, algorithm] : {std::pair{Collective::all_reduce, "ring"},
                                              {Collective::all_reduce, "two_shot"},
                                              {Collective::all_gather, "ring"},
                                              {Collective::all_gather, "direct"},
                                              {Collective::all_to_all, "direct"},
                                              {Collective::broadcast, "ring"}}) {
    const algorithm::Entry& entry = **algorithm::find(collective, algorithm);
    const auto plan = algorithm::make_plan(entry, {.collective = collective,
                                                   .placement = topo::Placement::single_node(ranks),
                                                   .protocol = protocol});
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    const plan::ZeroCopy pass(*plan);
    EXPECT_GT(pass.early(), 0) << algorithm;
    plan::Plan made = pass.under(plan::Reach(ranks, true));
    made.header.name = str("puts_of_", entry.plan_name());
    out.push_back(plan::to_json(made));
  }
  return out;
}

// What a call leaves, in host memory or by way of the device's.
std::vector<float> output_of(Communicator& communicator, const plan::Header& header,
                             std::int64_t count, const TestStream* stream) {
  const int rank = communicator.rank();
  std::mt19937_64 random(static_cast<std::uint64_t>(rank + 1));
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> in(static_cast<std::size_t>(count * input_blocks_of(header, rank)));
  for (float& value : in) value = values(random);
  std::vector<float> out(static_cast<std::size_t>(count * output_blocks_of(header, rank)));
  Call call{.collective = header.collective,
            .input = in.data(),
            .output = out.data(),
            .count = count,
            .type = DataType::float32,
            .operation = ReduceOperation::sum,
            .options = {.algorithm = header.name}};
  if (stream == nullptr) {
    const Status status = communicator.run(call);
    EXPECT_TRUE(status.ok()) << header.name << ": " << status.error().describe();
    return out;
  }
  const sys::cuda::Device& device = stream->device();
  const std::size_t in_bytes = in.size() * sizeof(float);
  const std::size_t out_bytes = out.size() * sizeof(float);
  auto input = Memory::allocate(stream->shared_device(), in_bytes + 16);
  auto output = Memory::allocate(stream->shared_device(), out_bytes + 16);
  EXPECT_TRUE(input.ok() && output.ok());
  EXPECT_TRUE(device.upload(input->address(), in.data(), in_bytes).ok());
  call.input = reinterpret_cast<const void*>(input->address());
  call.output = reinterpret_cast<void*>(output->address());
  call.options.stream = stream->handle();
  // In the second call peers may reach the output.
  for (int i = 0; i < 2; ++i) {
    const Status status = communicator.run(call);
    EXPECT_TRUE(status.ok()) << header.name << ": " << status.error().describe();
    EXPECT_TRUE(stream->synchronize().ok() && communicator.failure().ok()) << header.name;
  }
  const auto at = reinterpret_cast<sys::cuda::DeviceAddress>(out.data());
  EXPECT_TRUE(device.copy(at, output->address(), out_bytes).ok());
  return out;
}

class GpuOneSided : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    std::string why;
    const auto devices = usable_devices(&why);
    if (static_cast<int>(devices.size()) < ranks)
      GTEST_SKIP() << ranks << " ranks need as many devices" << why;
  }
  static SettingValues settings() {
    return {{"UNISONO_GPU_ZERO_COPY_MIN_BYTES", GetParam() ? "0" : "2MiB"}};
  }
};

TEST_P(GpuOneSided, RegisteredPlansGiveTheHostEnginesBits) {
  const auto devices = usable_devices();
  const auto device_of = [&](int rank) { return devices[static_cast<std::size_t>(rank)]; };
  for (const Protocol protocol : {Protocol::simple, Protocol::ll, Protocol::ll128}) {
    const std::vector<std::string> texts = plans(protocol);
    run_ranks({.ranks = ranks,
               .timeout = test::deadline_of_calls,
               .device = [&](int rank) { return device_of(rank)->ordinal(); },
               .settings = settings()},
              [&](Communicator& communicator) {
                const TestStream stream(device_of(communicator.rank()));
                for (const std::string& text : texts) {
                  const Status registered = communicator.register_plans(std::span(&text, 1));
                  ASSERT_TRUE(registered.ok()) << registered.error().describe();
                  const auto plan = plan::from_json(text);
                  ASSERT_TRUE(plan.ok());
                  for (const std::int64_t count : {1, 1001, 40'000}) {
                    const auto wanted = output_of(communicator, plan->header, count, nullptr);
                    const auto got = output_of(communicator, plan->header, count, &stream);
                    ASSERT_EQ(wanted.size(), got.size());
                    EXPECT_EQ(std::memcmp(wanted.data(), got.data(), got.size() * sizeof(float)), 0)
                        << plan->header.name << ", " << name(protocol) << ", count " << count
                        << ", rank " << communicator.rank();
                  }
                }
              });
  }
}

// Puts need no slots in host memory; as messages on a stream these need three.
constexpr std::string_view three_puts_a_signal = R"(plan three_puts version 1
collective all_gather ranks 3
protocol simple channels 1 in_place no
chunks 3 input_blocks 1 output_blocks 3
bytes 0..

rank 0
  block 0 channel 0 send 1 recv 2
    put input[0] -> output[0]
    put input[1] -> output[1]
    put input[2] -> output[2]
    signal
    wait
    copy input[0] -> output[0] x3
  block 1 channel 0 send 2 recv 1
    put input[0] -> output[0]
    put input[1] -> output[1]
    put input[2] -> output[2]
    signal
    wait

rank 1
  block 0 channel 0 send 2 recv 0
    put input[0] -> output[3]
    put input[1] -> output[4]
    put input[2] -> output[5]
    signal
    wait
    copy input[0] -> output[3] x3
  block 1 channel 0 send 0 recv 2
    put input[0] -> output[3]
    put input[1] -> output[4]
    put input[2] -> output[5]
    signal
    wait

rank 2
  block 0 channel 0 send 0 recv 1
    put input[0] -> output[6]
    put input[1] -> output[7]
    put input[2] -> output[8]
    signal
    wait
    copy input[0] -> output[6] x3
  block 1 channel 0 send 1 recv 0
    put input[0] -> output[6]
    put input[1] -> output[7]
    put input[2] -> output[8]
    signal
    wait
)";

TEST_P(GpuOneSided, APlanOfMoreSlotsThanTheGpuHasRunsInHostMemoryAlone) {
  const auto devices = usable_devices();
  const auto device_of = [&](int rank) { return devices[static_cast<std::size_t>(rank)]; };
  SettingValues two_slots = settings();
  two_slots.emplace_back("UNISONO_GPU_SLOTS", "2");
  run_ranks({.ranks = ranks,
             .timeout = test::deadline_of_calls,
             .device = [&](int rank) { return device_of(rank)->ordinal(); },
             .settings = two_slots},
            [&](Communicator& communicator) {
              const TestStream stream(device_of(communicator.rank()));
              const std::string text(three_puts_a_signal);
              const auto plan = plan::parse(text);
              ASSERT_TRUE(plan.ok()) << plan.error().message;
              const Status registered = communicator.register_plans(std::span(&text, 1));
              ASSERT_TRUE(registered.ok()) << registered.error().describe();
              EXPECT_EQ(output_of(communicator, plan->header, 300, nullptr).size(), 900U);
              auto input = Memory::allocate(stream.shared_device(), 300 * sizeof(float));
              auto output = Memory::allocate(stream.shared_device(), 900 * sizeof(float));
              ASSERT_TRUE(input.ok() && output.ok());
              const Status refused = communicator.run(
                  {.collective = Collective::all_gather,
                   .input = reinterpret_cast<const void*>(input->address()),
                   .output = reinterpret_cast<void*>(output->address()),
                   .count = 300,
                   .type = DataType::float32,
                   .operation = ReduceOperation::sum,
                   .options = {.algorithm = "three_puts", .stream = stream.handle()}});
              ASSERT_FALSE(refused.ok());
              EXPECT_EQ(refused.error().kind, ErrorKind::misuse);
              EXPECT_NE(refused.error().message.find(
                            "needs 3 slots in each connection, of which only 2 are available"),
                        std::string::npos)
                  << refused.error().message;
              // Nothing has started: the communicator goes on, on the stream, too.
              EXPECT_TRUE(communicator.barrier({.stream = stream.handle()}).ok());
              EXPECT_TRUE(stream.synchronize().ok());
            });
}

INSTANTIATE_TEST_SUITE_P(ZeroCopy, GpuOneSided, testing::Bool(), [](const auto& given) {
  return given.param ? "WherePeersReach" : "ThroughSlots";
});

}  // namespace
}  // namespace unisono
