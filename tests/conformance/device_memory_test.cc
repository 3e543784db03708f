// GPUs' memory: which connections take it, and what the others say. By the emulated driver. How
// users' device memory is mapped by peers is in tests/transport/registrations_test.cc.

#include "conformance/harness.h"
#include "sys/cuda/device.h"

namespace unisono::test {
namespace {

class DeviceMemory : public testing::TestWithParam<Factory> {
 protected:
  static constexpr std::size_t bytes = 5'000;
  void SetUp() override {
    auto device = sys::cuda::Device::open(0);
    ASSERT_TRUE(device.ok()) << device.error().describe();
    auto memory = sys::cuda::Memory::allocate(*device, bytes);
    ASSERT_TRUE(memory.ok()) << memory.error().describe();
    memory_ = std::move(*memory);
  }
  std::byte* data() const { return reinterpret_cast<std::byte*>(memory_.address()); }

  sys::cuda::Memory memory_;
};
INSTANTIATE_TEST_SUITE_P(All, DeviceMemory, testing::ValuesIn(factories_inside_a_process()),
                         factory_name);

class DeviceSource : public DeviceMemory {};
INSTANTIATE_TEST_SUITE_P(All, DeviceSource,
                         testing::ValuesIn(factories_with(&Factory::links_devices)), factory_name);

TEST_P(DeviceMemory, IsExposedByNoTransportOfTheHost) {
  Job job(GetParam(), 2);
  auto pair = joined(job);
  ASSERT_EQ(pair->b->device_link() != nullptr, GetParam().links_devices);
  const auto refused = pair->b->expose(data() + 100, 1'000);
  if (GetParam().links_devices) {
    // Peers map it by another way, and no put of this one reaches it.
    ASSERT_TRUE(refused.ok()) << refused.error().describe();
    EXPECT_EQ(refused->key, 0u);
    return;
  }
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::misuse);
  const std::string where = str("0x", hex(memory_.address() + 100));
  for (const std::string_view part :
       {std::string_view(where), job.transports[1]->name(), std::string_view("CUDA device 0")})
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  // It takes no place, and the connection goes on.
  std::vector<std::byte> memory(100);
  RemoteMemory exposed;
  for (std::size_t i = 0; i < Connection::most_exposed; ++i)
    exposed = must_expose(*pair->b, memory);
  const std::vector<std::byte> source(memory.size(), std::byte{4});
  ASSERT_TRUE(put_to(*pair->a, exposed, 0, source.data(), source.size(), {0, 1}));
  ASSERT_TRUE(eventually([&] {
    EXPECT_TRUE(progress_all({pair->a.get(), pair->b.get()}).ok());
    return signals_of(*pair->b)[0].load(std::memory_order_acquire) == 1;
  }));
  EXPECT_EQ(memory, source);
}

TEST_P(DeviceSource, IsPutWhereLinksAreMappedOnDevices) {
  Job job(GetParam(), 2);
  auto pair = joined(job);
  std::mt19937_64 random(8);
  const auto content = random_bytes(random, bytes);
  const auto device = sys::cuda::Device::open(0);
  ASSERT_TRUE((*device)->upload(memory_.address(), content.data(), bytes).ok());
  ASSERT_TRUE(put(*pair->a, data(), bytes, 7, {0, 1}));
  ASSERT_TRUE(wait_for_signal(*pair->b, 0, 1));
  EXPECT_TRUE(equal_bytes(region_of(*pair->b) + 7, content.data(), bytes));
  EXPECT_TRUE(wait_for_completion(*pair->a));
}

}  // namespace
}  // namespace unisono::test
