// Sums and averages of narrow floats, of all bits that there are.
#include <gtest/gtest.h>

#include <random>

#include "engine/reduce/reduce.h"
#include "gpu/runs.h"
#include "support/emulated_device.h"

namespace unisono::test {
namespace {

constexpr std::int64_t count = 1 << 20;
using Halves = std::vector<std::uint16_t>;

// Half of them have nearly the exponent of `beside`, so that sums cancel and are ties.
Halves random_bits(std::mt19937_64& random, const Halves& beside) {
  Halves bits(count);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    bits[i] = static_cast<std::uint16_t>(random());
    if (!beside.empty() && i % 2 == 0)
      bits[i] = static_cast<std::uint16_t>((beside[i] & 0x7c00U) ^ (bits[i] & 0x87ffU));
  }
  return bits;
}

TEST(GpuSums, OfNarrowFloatsAreTheHostsBitForBit) {
  std::string why;
  if (usable_devices(&why).empty()) GTEST_SKIP() << why;
  const std::uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  GpuCluster cluster(2, {});
  const algorithm::Entry& entry = **algorithm::find(Collective::all_reduce, "two_shot");
  for (const DataType type : {DataType::float16, DataType::bfloat16})
    for (const auto& [protocol, operation] :
         {std::pair(Protocol::simple, ReduceOperation::sum),
          std::pair(Protocol::simple, ReduceOperation::average),
          std::pair(Protocol::ll128, ReduceOperation::sum),
          std::pair(Protocol::ll128, ReduceOperation::average)}) {
      const Problem problem{
          .collective = Collective::all_reduce, .ranks = 2, .operation = operation};
      auto executions =
          cluster.make_executions(run_of(entry, problem, protocol, 1, true, 1)).value();
      const Halves first = random_bits(random, {});
      const Halves inputs[] = {first, random_bits(random, first)};
      Halves wanted(count);
      Halves terms[] = {inputs[0], inputs[1]};
      if (operation == ReduceOperation::average)
        for (Halves& term : terms)
          engine::scale(type, term.data(), term.data(), term.size(), {.real = 0.5});
      engine::reduce_function(type, operation)(wanted.data(), terms[0].data(), terms[1].data(),
                                               wanted.size());
      constexpr std::size_t bytes = count * sizeof(std::uint16_t);
      std::vector<sys::cuda::Memory> memory;
      std::vector<engine::Arguments> arguments;
      for (const int rank : {0, 1}) {
        const auto device = cluster.engine(rank).shared_device();
        memory.push_back(sys::cuda::Memory::allocate(device, bytes).value());
        ASSERT_TRUE(device->upload(memory.back().address(), inputs[rank].data(), bytes).ok());
        auto* data = reinterpret_cast<void*>(memory.back().address());
        arguments.push_back({.input = data,
                             .output = data,
                             .count = count,
                             .type = type,
                             .operation = operation,
                             .options = {.timeout = std::chrono::seconds(120),
                                         .stream = cluster.stream(rank).handle()}});
      }
      ASSERT_TRUE(cluster.launch(executions, arguments, cluster.all_ranks()).ok());
      ASSERT_TRUE(cluster.synchronize().ok());
      Halves got(count);
      ASSERT_TRUE(cluster.engine(1)
                      .device()
                      .copy(sys::cuda::address_of(got.data()), memory[1].address(), bytes)
                      .ok());
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(got[i], wanted[i])
            << name(type) << ", " << name(protocol) << ", " << name(operation) << ", seed " << seed
            << ": " << inputs[0][i] << " and " << inputs[1][i];
    }
}

}  // namespace
}  // namespace unisono::test
