#include <unisono/device.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/try.h"
#include "sys/cuda/device.h"

namespace unisono {

using sys::cuda::Device;
using sys::cuda::DeviceAddress;

namespace {

// Opened once; held until the process ends, as the CUDA runtime holds its contexts.
Result<std::shared_ptr<const Device>> device_of(int ordinal) {
  static std::mutex mutex;
  static auto& devices = *new std::map<int, std::shared_ptr<const Device>>;
  const std::lock_guard lock(mutex);
  auto& device = devices[ordinal];
  if (!device) {
    UNISONO_ASSIGN(device, Device::open(ordinal));
  }
  return device;
}

sys::cuda::StreamHandle* handle_of(void* stream) {
  return static_cast<sys::cuda::StreamHandle*>(stream);
}

}  // namespace

Result<int> current_device() { return Device::current_ordinal(); }

Result<int> device_count() {
  UNISONO_ASSIGN(const sys::cuda::Driver* driver, sys::cuda::driver());
  int count = 0;
  UNISONO_TRY(sys::cuda::check(*driver, driver->device_count(&count), "counting CUDA devices"));
  return count;
}

Result<void*> allocate_device_memory(std::size_t bytes) {
  UNISONO_ASSIGN(const int ordinal, Device::current_ordinal());
  UNISONO_ASSIGN(const auto device, device_of(ordinal));
  const sys::cuda::Current current(*device);
  DeviceAddress address = 0;
  UNISONO_TRY(device->check(device->driver().allocate(&address, std::max<std::size_t>(bytes, 1)),
                            str("allocating ", bytes, " bytes")));
  return reinterpret_cast<void*>(address);
}

Status free_device_memory(void* memory) {
  if (memory == nullptr) return {};
  UNISONO_ASSIGN(const sys::cuda::Driver* driver, sys::cuda::driver());
  const sys::cuda::PointerKind kind = sys::cuda::kind_of(*driver, memory);
  if (!kind.is_device || kind.ordinal < 0)
    return misuse("the address 0x", hex(reinterpret_cast<std::uintptr_t>(memory)),
                  " cannot be freed: it is not memory of a CUDA device");
  UNISONO_ASSIGN(const auto device, device_of(kind.ordinal));
  const sys::cuda::Current current(*device);
  return device->check(driver->free(reinterpret_cast<DeviceAddress>(memory)), "freeing memory");
}

Status read_device_memory(void* host, const void* memory, std::size_t bytes, int device,
                          void* stream) {
  UNISONO_ASSIGN(const auto opened, device_of(device));
  const sys::cuda::Driver& driver = opened->driver();
  const sys::cuda::Current current(*opened);
  int capturing = 0;
  UNISONO_TRY(opened->check(driver.stream_is_capturing(handle_of(stream), &capturing),
                            "asking whether a stream is being captured"));
  if (capturing != 0)
    return misuse(
        "a call whose scalar is in device memory cannot be captured into a CUDA graph, because the "
        "scalar is read when the call is made; pass a scalar in host memory");
  UNISONO_TRY(opened->check(
      driver.copy_async(reinterpret_cast<DeviceAddress>(host),
                        reinterpret_cast<DeviceAddress>(memory), bytes, handle_of(stream)),
      str("reading ", bytes, " bytes of device memory")));
  return opened->check(driver.stream_synchronize(handle_of(stream)),
                       str("reading ", bytes, " bytes of device memory"));
}

Status record_event(int device, void* event, void* stream) {
  UNISONO_ASSIGN(const auto opened, device_of(device));
  const sys::cuda::Current current(*opened);
  return opened->check(
      opened->driver().event_record(static_cast<sys::cuda::EventHandle*>(event), handle_of(stream)),
      "recording an event");
}

Status order_streams(int device, void* before, void* after) {
  if (before == after) return {};
  UNISONO_ASSIGN(const auto opened, device_of(device));
  const sys::cuda::Driver& driver = opened->driver();
  const sys::cuda::Current current(*opened);
  sys::cuda::EventHandle* event = nullptr;
  UNISONO_TRY(opened->check(driver.event_create(&event, sys::cuda::event_without_timing),
                            "making an event"));
  Status status =
      opened->check(driver.event_record(event, handle_of(before)), "recording an event");
  if (status.ok())
    status = opened->check(driver.stream_wait_event(handle_of(after), event, 0),
                           "having a stream wait for an event");
  // The driver keeps it until the streams have passed it.
  driver.event_destroy(event);
  return status;
}

}  // namespace unisono
