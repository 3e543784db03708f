// What the library must get from a driver before it makes a call: two H100 whose memory is the
// host's.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sys/cuda/driver.h"

// NOLINTBEGIN(readability-identifier-naming): the driver's names
using namespace unisono::sys::cuda;  // NOLINT(google-build-using-namespace)

namespace {
constexpr int devices = 2;
// CUdevice_attribute and CUpointer_attribute.
constexpr int multiprocessors = 16, capability_major = 75, memory_type = 2, ordinal = 9;
constexpr unsigned page = 1 << 21;

ContextHandle* context_of(int device) {
  static char contexts[devices];
  return reinterpret_cast<ContextHandle*>(&contexts[device]);
}
thread_local int current = 0;
template <class Handle>
DriverResult make(Handle** handle) {
  *handle = static_cast<Handle*>(std::malloc(1));
  return driver_success;
}
}  // namespace

extern "C" {

DriverResult cuDriverGetVersion(int* version) {
  *version = 13000;
  return driver_success;
}
DriverResult cuGetErrorName(DriverResult, const char** name) {
  *name = "an error";
  return driver_success;
}
DriverResult cuGetErrorString(DriverResult, const char** text) {
  *text = "of a driver that does nothing";
  return driver_success;
}
DriverResult cuDeviceGetCount(int* count) {
  *count = devices;
  return driver_success;
}
DriverResult cuDeviceGet(DeviceOrdinal* device, int wanted) {
  *device = wanted;
  return driver_success;
}
DriverResult cuDeviceGetUuid_v2(Uuid* uuid, DeviceOrdinal device) {
  *uuid = {};
  uuid->bytes[0] = static_cast<char>(device + 1);
  return driver_success;
}
DriverResult cuDeviceGetPCIBusId(char* text, int bytes, DeviceOrdinal device) {
  std::snprintf(text, static_cast<std::size_t>(bytes), "0000:%02x:00.0", device + 1);
  return driver_success;
}
DriverResult cuDeviceGetAttribute(int* value, int attribute, DeviceOrdinal) {
  *value = attribute == multiprocessors ? 132 : attribute == capability_major ? 9 : 0;
  return driver_success;
}
DriverResult cuDeviceCanAccessPeer(int* can, DeviceOrdinal, DeviceOrdinal) {
  *can = 1;
  return driver_success;
}
DriverResult cuDeviceGetP2PAttribute(int* value, int, DeviceOrdinal, DeviceOrdinal) {
  *value = 1;  // they are connected by NVLink
  return driver_success;
}
DriverResult cuDevicePrimaryCtxRetain(ContextHandle** context, DeviceOrdinal device) {
  *context = context_of(device);
  return driver_success;
}
DriverResult cuCtxPushCurrent_v2(ContextHandle* context) {
  current = context == context_of(0) ? 0 : 1;
  return driver_success;
}
DriverResult cuCtxGetCurrent(ContextHandle** context) {
  *context = context_of(current);
  return driver_success;
}
DriverResult cuCtxGetDevice(DeviceOrdinal* device) {
  *device = current;
  return driver_success;
}
DriverResult cuMemAlloc_v2(DeviceAddress* address, std::size_t bytes) {
  void* const memory = std::aligned_alloc(page, (bytes + page - 1) / page * page);
  if (memory != nullptr) std::memset(memory, 0, bytes);
  *address = address_of(memory);
  return memory != nullptr ? driver_success : 2;
}
DriverResult cuMemFree_v2(DeviceAddress address) {
  std::free(reinterpret_cast<void*>(address));
  return driver_success;
}
DriverResult cuMemHostGetDevicePointer_v2(DeviceAddress* address, void* host, unsigned) {
  *address = address_of(host);
  return driver_success;
}
DriverResult cuMemcpyAsync(DeviceAddress to, DeviceAddress from, std::size_t bytes, StreamHandle*) {
  std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return driver_success;
}
DriverResult cuMemsetD8Async(DeviceAddress at, unsigned char value, std::size_t bytes,
                             StreamHandle*) {
  std::memset(reinterpret_cast<void*>(at), value, bytes);
  return driver_success;
}
DriverResult cuIpcGetMemHandle(IpcHandle* handle, DeviceAddress address) {
  *handle = {};
  std::memcpy(handle->bytes.data(), &address, sizeof address);
  return driver_success;
}
DriverResult cuIpcOpenMemHandle_v2(DeviceAddress* address, IpcHandle handle, unsigned) {
  std::memcpy(address, handle.bytes.data(), sizeof *address);
  return driver_success;
}
DriverResult cuPointerGetAttribute(void* value, int attribute, DeviceAddress) {
  if (attribute == memory_type || attribute == ordinal) {
    const int result = attribute == memory_type ? 2 : current;
    std::memcpy(value, &result, sizeof result);
  } else {
    std::memset(value, 0, sizeof(std::uint64_t));
  }
  return driver_success;
}
DriverResult cuMemGetAddressRange_v2(DeviceAddress* base, std::size_t* bytes, DeviceAddress at) {
  *base = at / page * page;
  *bytes = page;
  return driver_success;
}
DriverResult cuMemRetainAllocationHandle(AllocationHandle*, void*) { return 801; }
DriverResult cuModuleLoadData(ModuleHandle** module, const void*) { return make(module); }
DriverResult cuModuleGetFunction(FunctionHandle** function, ModuleHandle*, const char*) {
  return make(function);
}
DriverResult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, FunctionHandle*, int,
                                                         std::size_t) {
  *blocks = 1;
  return driver_success;
}
DriverResult cuFuncGetAttribute(int* value, int, FunctionHandle*) {
  *value = 90;
  return driver_success;
}
DriverResult cuStreamCreate(StreamHandle** stream, unsigned) { return make(stream); }
DriverResult cuStreamCreateWithPriority(StreamHandle** stream, unsigned, int) {
  return make(stream);
}
DriverResult cuStreamGetCtx(StreamHandle*, ContextHandle** context) {
  *context = context_of(current);
  return driver_success;
}
DriverResult cuStreamIsCapturing(StreamHandle*, int* status) {
  *status = 0;
  return driver_success;
}
DriverResult cuStreamGetCaptureInfo_v2(StreamHandle*, int* status, unsigned long long* id,
                                       GraphHandle**, const void**, std::size_t*) {
  *status = 0;
  *id = 0;
  return driver_success;
}
DriverResult cuEventCreate(EventHandle** event, unsigned) { return make(event); }

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
