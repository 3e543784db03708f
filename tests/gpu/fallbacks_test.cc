// The record and explain() name the path that calls on streams take, and why it is not the chosen
// one.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/try.h"
#include "support/eventually.h"
#include "support/gpu_cluster.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using test::run_ranks;
using test::TestStream;
using test::usable_devices;

constexpr std::int64_t elements = 64 << 10;

std::shared_ptr<const sys::cuda::Device> device_of(int rank) {
  static const auto devices = usable_devices();
  return devices[static_cast<std::size_t>(rank)];
}

class GpuFallbacks : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    std::string why;
    const auto devices = static_cast<int>(usable_devices(&why).size());
    if (devices == 0) GTEST_SKIP() << why;
    if (devices < GetParam()) GTEST_SKIP() << GetParam() << " ranks need as many devices";
  }
  static test::RanksOptions options() {
    return {.ranks = GetParam(),
            .device = [](int rank) { return device_of(rank)->ordinal(); },
            // The smallest calls take what the largest take.
            .settings = {{"UNISONO_GPU_ZERO_COPY_MIN_BYTES", "1KiB"}}};
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuFallbacks, testing::Values(2, 4));

// As PyTorch's DDP makes it: in place, and computation overlaps.
Status all_reduce(Communicator& communicator, const TestStream& stream, void* data) {
  UNISONO_TRY(communicator.all_reduce(data, data, elements, DataType::bfloat16,
                                      ReduceOperation::sum,
                                      {.stream = stream.handle(), .compute_overlap = true}));
  return stream.synchronize();
}

std::string_view text_of(const json::Value& entry, std::string_view member) {
  const json::Value* const found = entry.find(member);
  return found == nullptr ? std::string_view() : found->string();
}

std::vector<json::Value> entries_of(const Communicator& communicator) {
  auto record = json::parse(communicator.dump_record());
  EXPECT_TRUE(record.ok()) << record.error().describe();
  std::vector<json::Value> out;
  for (const json::Value& entry : record->find("collectives")->array())
    if (text_of(entry, "type") == "bfloat16") out.push_back(entry);
  return out;
}

// Makes calls until all ranks have mapped each other's memory, so that none falls back. All ranks
// make as many: they compare what their records say.
void call_until_mapped(Communicator& communicator, const TestStream& stream, void* data) {
  const auto end = std::chrono::steady_clock::now() + test::patience;
  std::int32_t falls_back = 1;
  while (falls_back != 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "the calls still fall back";
    const Status called = all_reduce(communicator, stream, data);
    ASSERT_TRUE(called.ok()) << called.error().describe();
    falls_back = entries_of(communicator).back().find("fallback") != nullptr ? 1 : 0;
    ASSERT_TRUE(
        communicator.all_reduce(&falls_back, &falls_back, 1, DataType::int32, ReduceOperation::max)
            .ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// The first calls are made before the other ranks have mapped the memory.
TEST_P(GpuFallbacks, ARecordAndAnExplanationSayWhatRan) {
  run_ranks(options(), [](Communicator& communicator) {
    const auto device = device_of(communicator.rank());
    const TestStream stream(device);
    auto memory = sys::cuda::Memory::allocate(device, elements * 2);
    ASSERT_TRUE(memory.ok());
    auto* const data = reinterpret_cast<void*>(memory->address());
    call_until_mapped(communicator, stream, data);
    const auto entries = entries_of(communicator);
    ASSERT_GE(entries.size(), 2U);
    const auto explained = communicator.explain(
        Collective::all_reduce, elements * 2,
        {.type = DataType::bfloat16, .in_place = true, .options = {.compute_overlap = true}});
    ASSERT_TRUE(explained.ok()) << explained.error().describe();
    for (const json::Value& entry : entries) {
      const bool fell_back = entry.find("fallback") != nullptr;
      EXPECT_EQ(text_of(entry, "path"), fell_back ? "ll128_all_pairs" : explained->path);
      EXPECT_EQ(text_of(entry, "chosen_path"), fell_back ? explained->path : "");
      if (!fell_back) {
        EXPECT_EQ(entry.find("thread_blocks")->integer(), explained->thread_blocks);
        EXPECT_EQ(entry.find("slots")->integer(), explained->slots);
      }
    }
    EXPECT_EQ(explained->path, "tma_bulk");
    EXPECT_EQ(text_of(entries.front(), "fallback"), "not_mapped");
    EXPECT_EQ(text_of(entries.back(), "fallback"), "");
  });
}

// All ranks but one share their memory: its reason is its own, and the others say that it was
// another rank's.
TEST_P(GpuFallbacks, ARankThatAnotherHoldsUpSaysSo) {
  run_ranks(options(), [](Communicator& communicator) {
    const auto device = device_of(communicator.rank());
    const TestStream stream(device);
    auto memory = sys::cuda::Memory::allocate(device, 4096 + elements * 2);
    ASSERT_TRUE(memory.ok());
    auto* const data = reinterpret_cast<std::byte*>(memory->address());
    call_until_mapped(communicator, stream, data);
    // Rank 0's alone does not begin at a whole unit.
    std::byte* const shifted = communicator.rank() == 0 ? data + 2 : data;
    ASSERT_TRUE(all_reduce(communicator, stream, shifted).ok());
    const auto entries = entries_of(communicator);
    const std::string_view why = communicator.rank() == 0 ? "not_aligned" : "peer";
    EXPECT_EQ(text_of(entries.back(), "fallback"), why);
    EXPECT_EQ(text_of(entries.back(), "path"), "ll128_all_pairs");
    EXPECT_EQ(text_of(entries.back(), "chosen_path"), "tma_bulk");
  });
}

}  // namespace
}  // namespace unisono
