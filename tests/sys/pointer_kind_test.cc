// What the driver says of an address, and what is made of it.
#include "sys/cuda/device.h"

#include <gtest/gtest.h>

namespace unisono::sys::cuda {
namespace {

// A driver that knows two allocations of device 3, of which the second one is managed.
std::byte device_memory, managed_memory, host_memory;

DriverResult attribute_of(void* value, int attribute, DeviceAddress address) {
  constexpr DriverResult unknown = 1;
  const bool is_managed = address == reinterpret_cast<DeviceAddress>(&managed_memory);
  if (!is_managed && address != reinterpret_cast<DeviceAddress>(&device_memory)) return unknown;
  switch (attribute) {
    case 2:
      *static_cast<unsigned*>(value) = 2;
      return driver_success;
    case 8:
      *static_cast<unsigned*>(value) = is_managed ? 1 : 0;
      return driver_success;
    case 9:
      *static_cast<int*>(value) = 3;
      return driver_success;
    default:
      return unknown;
  }
}

TEST(PointerKind, DeviceMemoryIsToldFromManagedMemoryAndTheHosts) {
  Driver driver;
  driver.pointer_attribute = attribute_of;
  EXPECT_TRUE(kind_of(driver, &device_memory).is_device);
  EXPECT_EQ(kind_of(driver, &device_memory).ordinal, 3);
  EXPECT_FALSE(is_managed(driver, &device_memory));
  EXPECT_TRUE(kind_of(driver, &managed_memory).is_device);
  EXPECT_TRUE(is_managed(driver, &managed_memory));
  EXPECT_FALSE(kind_of(driver, &host_memory).is_device);
  EXPECT_FALSE(is_managed(driver, &host_memory));
}

}  // namespace
}  // namespace unisono::sys::cuda
