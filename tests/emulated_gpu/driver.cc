// A driver of CUDA whose device is this process: as much of libcuda.so.1 as src/sys/cuda calls, for
// tests of kernels and of what launches them on machines without a GPU. There are memory, streams,
// events, graphs, launches and memory of other processes; no memory that is mapped piece by piece.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "device.h"
#include "kernels.h"
#include "scheduler.h"
#include "sys/cuda/driver.h"

namespace unisono::emulated {
namespace {

using namespace sys::cuda;  // NOLINT(google-build-using-namespace): the driver's types

// CUresult.
constexpr DriverResult invalid_value = 1;
constexpr DriverResult not_found = 500;
constexpr DriverResult launch_failed = 719;
constexpr DriverResult not_supported = 801;
// CUdevice_attribute, CUpointer_attribute, CUfunction_attribute.
constexpr int attribute_sms = 16;
constexpr int attribute_capability_major = 75;
constexpr int attribute_capability_minor = 76;
constexpr int pointer_memory_type = 2;
constexpr int pointer_buffer_id = 7;
constexpr int pointer_device_ordinal = 9;
constexpr unsigned memory_type_device = 2;
constexpr int version = 13000;
constexpr int capability = 90;

int setting(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}
int sms() { return setting("UNISONO_EMULATED_SMS", 16); }
int devices() { return setting("UNISONO_EMULATED_DEVICES", 1); }

// Contexts and functions are told apart by their addresses.
struct Context {
  int device;
};
Context& context_of(int device) {
  static std::vector<Context> all = [] {
    std::vector<Context> made;
    for (int i = 0; i < devices(); ++i) made.push_back({i});
    return made;
  }();
  return all[static_cast<std::size_t>(device)];
}
// A thread's state. Not thread_local: shared_variables.h.
struct ThreadState {
  std::vector<Context*> current;
  int capture_mode = 0;
};
ThreadState& state_of_thread() {
  static const pthread_key_t key = [] {
    pthread_key_t made{};
    pthread_key_create(&made, [](void* state) { delete static_cast<ThreadState*>(state); });
    return made;
  }();
  auto* state = static_cast<ThreadState*>(pthread_getspecific(key));
  if (state == nullptr) pthread_setspecific(key, state = new ThreadState);
  return *state;
}
std::vector<Context*>& current() { return state_of_thread().current; }

Context* as_context(ContextHandle* handle) { return reinterpret_cast<Context*>(handle); }
ContextHandle* handle_of(Context* context) { return reinterpret_cast<ContextHandle*>(context); }
// What is on streams may need an event that was destroyed.
using SharedEvent = std::shared_ptr<Event>;
SharedEvent& as_event(EventHandle* handle) { return *reinterpret_cast<SharedEvent*>(handle); }

struct ContextStream : Stream {
  Context* context = current().empty() ? &context_of(0) : current().back();
};
std::mutex streams_mutex;
std::set<ContextStream*> streams;

ContextStream& as_stream(StreamHandle* handle) {
  static auto* const legacy = new ContextStream;
  const bool is_default = reinterpret_cast<std::uintptr_t>(handle) <= 2;
  return is_default ? *legacy : *reinterpret_cast<ContextStream*>(handle);
}

// Pairs of devices that PCIe connects, where NVLink connects the others; tests set them between
// calls. "0-1,2-3" in UNISONO_EMULATED_PCIE for processes.
std::set<std::pair<int, int>>& links_without_nvlink() {
  static std::set<std::pair<int, int>> all = [] {
    std::set<std::pair<int, int>> made;
    const char* const text = std::getenv("UNISONO_EMULATED_PCIE");
    std::istringstream pairs(text != nullptr ? text : "");
    int one = 0;
    int other = 0;
    char between = 0;
    while (pairs >> one >> between >> other) {
      made.insert(std::minmax(one, other));
      pairs >> between;
    }
    return made;
  }();
  return all;
}

void* at(DeviceAddress address) { return reinterpret_cast<void*>(address); }

}  // namespace
}  // namespace unisono::emulated

// NOLINTBEGIN(readability-identifier-naming): the driver's names
using namespace unisono::emulated;   // NOLINT(google-build-using-namespace)
using namespace unisono::sys::cuda;  // NOLINT(google-build-using-namespace)

extern "C" {

DriverResult cuInit(unsigned) { return driver_success; }
DriverResult cuDriverGetVersion(int* out) {
  *out = version;
  return driver_success;
}
DriverResult cuGetErrorName(DriverResult, const char** name) {
  *name = "an emulated driver's error";
  return driver_success;
}
DriverResult cuGetErrorString(DriverResult error, const char** text) {
  *text = error == not_supported ? "not emulated" : "refused";
  return driver_success;
}
DriverResult cuDeviceGetCount(int* count) {
  *count = devices();
  return driver_success;
}
DriverResult cuDeviceGet(DeviceOrdinal* device, int ordinal) {
  *device = ordinal;
  return driver_success;
}
DriverResult cuDeviceGetName(char* name, int bytes, DeviceOrdinal) {
  std::strncpy(name, "emulated", static_cast<std::size_t>(bytes));
  return driver_success;
}
DriverResult cuDeviceGetUuid_v2(Uuid* uuid, DeviceOrdinal device) {
  *uuid = {};
  uuid->bytes[0] = static_cast<char>(device + 1);
  return driver_success;
}
DriverResult cuDeviceGetPCIBusId(char* text, int, DeviceOrdinal device) {
  std::strcpy(text, ("0000:0" + std::to_string(device + 1) + ":00.0").c_str());
  return driver_success;
}
DriverResult cuDeviceGetAttribute(int* value, int attribute, DeviceOrdinal) {
  if (attribute == attribute_sms)
    *value = sms();
  else if (attribute == attribute_capability_major)
    *value = capability / 10;
  else if (attribute == attribute_capability_minor)
    *value = capability % 10;
  else
    return invalid_value;
  return driver_success;
}
DriverResult cuDeviceCanAccessPeer(int* can, DeviceOrdinal, DeviceOrdinal) {
  *can = 1;
  return driver_success;
}
DriverResult cuDeviceGetP2PAttribute(int* value, int attribute, DeviceOrdinal source,
                                     DeviceOrdinal destination) {
  if (attribute != p2p_native_atomics) return invalid_value;
  *value = links_without_nvlink().contains(std::minmax(source, destination)) ? 0 : 1;
  return driver_success;
}
DriverResult cuDevicePrimaryCtxRetain(ContextHandle** context, DeviceOrdinal device) {
  *context = handle_of(&context_of(device));
  return driver_success;
}
DriverResult cuDevicePrimaryCtxRelease_v2(DeviceOrdinal) { return driver_success; }
DriverResult cuCtxPushCurrent_v2(ContextHandle* context) {
  current().push_back(as_context(context));
  return driver_success;
}
DriverResult cuCtxPopCurrent_v2(ContextHandle** context) {
  if (current().empty()) return invalid_value;
  *context = handle_of(current().back());
  current().pop_back();
  return driver_success;
}
DriverResult cuCtxGetCurrent(ContextHandle** context) {
  *context = current().empty() ? nullptr : handle_of(current().back());
  return driver_success;
}
DriverResult cuCtxGetDevice(DeviceOrdinal* device) {
  *device = current().empty() ? 0 : current().back()->device;
  return driver_success;
}
DriverResult cuCtxSynchronize() {
  const std::lock_guard lock(streams_mutex);
  for (ContextStream* stream : streams) stream->synchronize();
  as_stream(nullptr).synchronize();
  return driver_success;
}
DriverResult cuCtxEnablePeerAccess(ContextHandle*, unsigned) { return driver_success; }

DriverResult cuMemAlloc_v2(DeviceAddress* address, std::size_t bytes) {
  *address = allocations().allocate(bytes, current().empty() ? 0 : current().back()->device);
  return *address != 0 ? driver_success : 2;
}
DriverResult cuMemFree_v2(DeviceAddress address) {
  return allocations().free(address) ? driver_success : invalid_value;
}
DriverResult cuMemHostRegister_v2(void*, std::size_t, unsigned) { return driver_success; }
DriverResult cuMemHostUnregister(void*) { return driver_success; }
DriverResult cuMemHostGetDevicePointer_v2(DeviceAddress* address, void* host, unsigned) {
  *address = reinterpret_cast<DeviceAddress>(host);
  return driver_success;
}
DriverResult cuMemcpyAsync(DeviceAddress destination, DeviceAddress source, std::size_t bytes,
                           StreamHandle* stream) {
  as_stream(stream).add(at_once([=] { std::memmove(at(destination), at(source), bytes); }));
  return driver_success;
}
DriverResult cuMemsetD8Async(DeviceAddress address, unsigned char value, std::size_t bytes,
                             StreamHandle* stream) {
  as_stream(stream).add(at_once([=] { std::memset(at(address), value, bytes); }));
  return driver_success;
}
DriverResult cuIpcGetMemHandle(IpcHandle* handle, DeviceAddress address) {
  const auto shared = allocations().share(address);
  if (!shared) return invalid_value;
  std::memcpy(handle->bytes.data(), &*shared, sizeof *shared);
  return driver_success;
}
DriverResult cuIpcOpenMemHandle_v2(DeviceAddress* address, IpcHandle handle, unsigned) {
  SharedAllocation shared{};
  static_assert(sizeof shared <= sizeof handle);
  std::memcpy(&shared, handle.bytes.data(), sizeof shared);
  const bool is_own = shared.process == getpid();
  if (!is_own) scheduler().share_with_processes();
  *address = is_own ? shared.address : imports().map(shared);
  return *address != 0 ? driver_success : invalid_value;
}
DriverResult cuIpcCloseMemHandle(DeviceAddress address) {
  // An allocation of this process is there until it is freed.
  return imports().unmap(address) || allocations().at(address) ? driver_success : invalid_value;
}
DriverResult cuPointerGetAttribute(void* value, int attribute, DeviceAddress address) {
  const auto found = allocations().at(address);
  if (!found) return invalid_value;
  if (attribute == pointer_memory_type)
    *static_cast<unsigned*>(value) = memory_type_device;
  else if (attribute == pointer_device_ordinal)
    *static_cast<int*>(value) = found->device;
  else if (attribute == pointer_buffer_id)
    *static_cast<std::uint64_t*>(value) = found->identity;
  else
    return invalid_value;
  return driver_success;
}
DriverResult cuMemGetAddressRange_v2(DeviceAddress* base, std::size_t* bytes,
                                     DeviceAddress address) {
  if (const std::size_t imported = imports().bytes_at(address); imported > 0) {
    *base = address;
    *bytes = imported;
    return driver_success;
  }
  const auto found = allocations().at(address);
  if (!found) return invalid_value;
  *base = found->address;
  *bytes = found->bytes;
  return driver_success;
}

DriverResult cuMemRetainAllocationHandle(AllocationHandle*, void*) { return not_supported; }
DriverResult cuMemCreate(AllocationHandle*, std::size_t, const AllocationProperties*,
                         unsigned long long) {
  return not_supported;
}
DriverResult cuMemRelease(AllocationHandle) { return not_supported; }
DriverResult cuMemExportToShareableHandle(void*, AllocationHandle, int, unsigned long long) {
  return not_supported;
}
DriverResult cuMemImportFromShareableHandle(AllocationHandle*, void*, int) { return not_supported; }
DriverResult cuMemAddressReserve(DeviceAddress*, std::size_t, std::size_t, DeviceAddress,
                                 unsigned long long) {
  return not_supported;
}
DriverResult cuMemAddressFree(DeviceAddress, std::size_t) { return not_supported; }
DriverResult cuMemMap(DeviceAddress, std::size_t, std::size_t, AllocationHandle,
                      unsigned long long) {
  return not_supported;
}
DriverResult cuMemUnmap(DeviceAddress, std::size_t) { return not_supported; }
DriverResult cuMemSetAccess(DeviceAddress, std::size_t, const AccessDescription*, std::size_t) {
  return not_supported;
}

DriverResult cuModuleLoadData(ModuleHandle** module, const void* image) {
  *module = static_cast<ModuleHandle*>(const_cast<void*>(image));
  return driver_success;
}
DriverResult cuModuleUnload(ModuleHandle*) { return driver_success; }
DriverResult cuModuleGetFunction(FunctionHandle** function, ModuleHandle*, const char* name) {
  const auto found = kernels().find(name);
  if (found == kernels().end()) return not_found;
  *function = reinterpret_cast<FunctionHandle*>(found->second);
  return driver_success;
}
DriverResult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, FunctionHandle*, int,
                                                         std::size_t) {
  *blocks = 1;
  return driver_success;
}
DriverResult cuFuncGetAttribute(int* value, int attribute, FunctionHandle*) {
  if (attribute != function_ptx_version) return invalid_value;
  *value = capability;
  return driver_success;
}
DriverResult cuFuncSetAttribute(FunctionHandle*, int, int) { return driver_success; }
DriverResult cuLaunchKernelEx(const LaunchConfiguration* configuration, FunctionHandle* function,
                              void** parameters, void**) {
  // As a device whose memory has failed.
  const char* const fails = std::getenv("UNISONO_EMULATED_FAILS");
  if (fails != nullptr && access(fails, F_OK) == 0) return launch_failed;
  const auto start = reinterpret_cast<Launcher>(function);
  as_stream(configuration->stream)
      .add(start(configuration->grid[0], configuration->block[0], parameters));
  return driver_success;
}

DriverResult cuStreamCreate(StreamHandle** stream, unsigned) {
  auto* const made = new ContextStream;
  const std::lock_guard lock(streams_mutex);
  streams.insert(made);
  *stream = reinterpret_cast<StreamHandle*>(made);
  return driver_success;
}
DriverResult cuStreamCreateWithPriority(StreamHandle** stream, unsigned flags, int) {
  return cuStreamCreate(stream, flags);
}
DriverResult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return driver_success;
}
DriverResult cuStreamDestroy_v2(StreamHandle* stream) {
  auto* const gone = reinterpret_cast<ContextStream*>(stream);
  {
    const std::lock_guard lock(streams_mutex);
    streams.erase(gone);
  }
  delete gone;
  return driver_success;
}
DriverResult cuStreamSynchronize(StreamHandle* stream) {
  as_stream(stream).synchronize();
  return driver_success;
}
DriverResult cuStreamQuery(StreamHandle* stream) {
  return as_stream(stream).query() ? driver_success : driver_not_ready;
}
DriverResult cuStreamWaitEvent(StreamHandle* stream, EventHandle* handle, unsigned) {
  ContextStream& waiting = as_stream(stream);
  const SharedEvent event = as_event(handle);
  if (event->capture != nullptr) {
    // A branch of the capture, whose operations come after those that are there.
    waiting.capture = event->capture;
    return driver_success;
  }
  waiting.add([event, number = event->recorded()]() -> Attempt {
    return [event, number](Random&) {
      return event->is_complete(number) ? Progress::complete : Progress::none;
    };
  });
  return driver_success;
}
DriverResult cuStreamGetCtx(StreamHandle* stream, ContextHandle** context) {
  *context = handle_of(as_stream(stream).context);
  return driver_success;
}
DriverResult cuStreamWriteValue64_v2(StreamHandle* stream, DeviceAddress address,
                                     std::uint64_t value, unsigned) {
  as_stream(stream).add(
      at_once([=] { std::atomic_ref(*static_cast<std::uint64_t*>(at(address))).store(value); }));
  return driver_success;
}
DriverResult cuStreamBatchMemOp_v2(StreamHandle* stream, unsigned count,
                                   MemoryOperation* operations, unsigned) {
  as_stream(stream).add([all = std::vector(operations, operations + count)]() -> Attempt {
    return [&all, next = std::size_t{0}](Random&) mutable {
      for (const std::size_t first = next; next < all.size(); ++next) {
        const MemoryOperation& one = all[next];
        const std::atomic_ref word(*static_cast<std::uint64_t*>(at(one.address)));
        const auto ahead = static_cast<std::int64_t>(word.load() - one.value);
        if (one.kind == MemoryOperation::write_value_64)
          word.store(one.value);
        else if (one.flags == MemoryOperation::equal ? ahead != 0 : ahead < 0)
          return next > first ? Progress::some : Progress::none;
      }
      return Progress::complete;
    };
  });
  return driver_success;
}

DriverResult cuStreamIsCapturing(StreamHandle* stream, int* status) {
  *status = as_stream(stream).capture != nullptr ? 1 : 0;
  return driver_success;
}
DriverResult cuStreamGetCaptureInfo_v2(StreamHandle* handle, int* status, unsigned long long* id,
                                       GraphHandle**, const void**, std::size_t*) {
  const ContextStream& stream = as_stream(handle);
  *status = stream.capture != nullptr ? 1 : 0;
  if (id != nullptr) *id = reinterpret_cast<std::uintptr_t>(stream.capture);
  return driver_success;
}
DriverResult cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(state_of_thread().capture_mode, *mode);
  return driver_success;
}
DriverResult cuStreamBeginCapture_v2(StreamHandle* stream, int) {
  as_stream(stream).capture = new Graph;
  return driver_success;
}
DriverResult cuStreamEndCapture(StreamHandle* stream, GraphHandle** graph) {
  Graph* const made = as_stream(stream).capture;
  const std::lock_guard lock(streams_mutex);
  for (ContextStream* one : streams)
    if (one->capture == made) one->capture = nullptr;
  as_stream(stream).capture = nullptr;
  *graph = reinterpret_cast<GraphHandle*>(made);
  return driver_success;
}
DriverResult cuGraphInstantiateWithFlags(GraphExecHandle** exec, GraphHandle* graph,
                                         unsigned long long) {
  *exec = reinterpret_cast<GraphExecHandle*>(new Graph(*reinterpret_cast<Graph*>(graph)));
  return driver_success;
}
DriverResult cuGraphLaunch(GraphExecHandle* exec, StreamHandle* stream) {
  for (const Operation& operation : reinterpret_cast<Graph*>(exec)->operations)
    as_stream(stream).add(operation);
  return driver_success;
}
DriverResult cuGraphExecDestroy(GraphExecHandle* exec) {
  delete reinterpret_cast<Graph*>(exec);
  return driver_success;
}
DriverResult cuGraphDestroy(GraphHandle* graph) {
  delete reinterpret_cast<Graph*>(graph);
  return driver_success;
}

DriverResult cuEventCreate(EventHandle** event, unsigned) {
  *event = reinterpret_cast<EventHandle*>(new SharedEvent(std::make_shared<Event>()));
  return driver_success;
}
DriverResult cuEventDestroy_v2(EventHandle* event) {
  delete &as_event(event);
  return driver_success;
}
DriverResult cuEventRecord(EventHandle* handle, StreamHandle* stream) {
  const SharedEvent event = as_event(handle);
  ContextStream& recording = as_stream(stream);
  event->capture = recording.capture;
  if (event->capture != nullptr) return driver_success;
  recording.add(at_once([event, number = event->record()] { event->complete(number); }));
  return driver_success;
}
DriverResult cuEventQuery(EventHandle* event) {
  scheduler().step_by_call();
  return as_event(event)->is_complete() ? driver_success : driver_not_ready;
}
DriverResult cuEventElapsedTime(float* ms, EventHandle* from, EventHandle* to) {
  *ms = 1e-6F * static_cast<float>(as_event(to)->completed_ns() - as_event(from)->completed_ns());
  return driver_success;
}

// For tests (tests/support/emulated_device.h).
void unisono_emulated_seed(std::uint64_t seed) { scheduler().seed(seed); }
std::uint64_t unisono_emulated_trace() { return scheduler().trace(); }
void unisono_emulated_drive_by_calls(bool does) { scheduler().drive_by_calls(does); }
void unisono_emulated_step() { scheduler().step_by_call(); }
void unisono_emulated_set_nvlink(int one, int other, bool is_there) {
  if (is_there)
    links_without_nvlink().erase(std::minmax(one, other));
  else
    links_without_nvlink().insert(std::minmax(one, other));
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
