// The part of NVIDIA's driver API that is used here, found in libcuda.so.1 when it is first wanted.
//
// Nothing of CUDA is needed to compile, link or start: the few types are declared here, as the
// driver's ABI has them, and on a machine without the library driver() fails and says why.
#pragma once

#include <unisono/result.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace unisono::sys::cuda {

// An address in a device's memory, or in host memory that it maps.
using DeviceAddress = std::uint64_t;
inline DeviceAddress address_of(const void* data) { return reinterpret_cast<DeviceAddress>(data); }
using DeviceOrdinal = int;
struct ContextHandle;
struct ModuleHandle;
struct FunctionHandle;
struct StreamHandle;
struct EventHandle;
struct GraphHandle;
struct GraphExecHandle;
using AllocationHandle = std::uint64_t;  // of memory that is mapped piece by piece
using DriverResult = int;                // 0: success

struct IpcHandle {
  std::array<char, 64> bytes;
};
struct Uuid {
  std::array<char, 16> bytes{};
  bool operator==(const Uuid&) const = default;
};

// CUmemAllocationProp and CUmemAccessDesc.
struct AllocationProperties {
  int type;           // 1: pinned
  int handle_types;   // what it can be exported as; 1: a file descriptor
  int location_type;  // 1: a device
  int location;
  void* windows_attributes;
  std::array<unsigned char, 8> flags;
};
struct AccessDescription {
  int location_type;
  int location;
  int flags;  // 3: read and write
};
// One of the operations on memory that a stream can do by itself (CUstreamBatchMemOpParams): to
// wait for the 64 bits at `address`, or to store `value` there.
struct MemoryOperation {
  enum Kind : std::uint32_t { wait_value_64 = 4, write_value_64 = 5 };
  Kind kind = wait_value_64;
  DeviceAddress address = 0;
  std::uint64_t value = 0;
  // Waiting: until they are at least `value`, cyclically, or until they are `value`. Writing: after
  // a barrier for the whole system.
  enum Flags : std::uint32_t { at_least = 0, equal = 1 };
  std::uint32_t flags = at_least;
  DeviceAddress alias = 0;
  std::uint64_t unused = 0;
};
static_assert(sizeof(MemoryOperation) == 48, "the driver's ABI");

// CUlaunchAttribute and CUlaunchConfig, with what is used of them.
struct LaunchAttribute {
  enum Kind : std::int32_t { programmatic_stream_serialization = 6 };
  Kind kind;
  std::int32_t padding;
  std::int32_t value;
  std::array<std::int32_t, 15> rest;
};
static_assert(sizeof(LaunchAttribute) == 72, "the driver's ABI");
struct LaunchConfiguration {
  std::array<unsigned, 3> grid;
  std::array<unsigned, 3> block;
  unsigned shared_bytes;
  StreamHandle* stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(LaunchConfiguration) == 56, "the driver's ABI");

inline constexpr DriverResult driver_success = 0;
inline constexpr DriverResult driver_peer_access_already_enabled = 704;
inline constexpr DriverResult driver_not_ready = 600;
// The program has reset the device, or ends.
inline constexpr DriverResult driver_deinitialized = 4;
inline constexpr DriverResult driver_context_is_destroyed = 709;
inline constexpr int p2p_native_atomics = 3;  // CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
inline constexpr unsigned event_without_timing = 2;  // CU_EVENT_DISABLE_TIMING
inline constexpr int function_ptx_version = 5;       // CU_FUNC_ATTRIBUTE_PTX_VERSION
inline constexpr int function_shared_bytes = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

// Each: name here, symbol of the library, parameters.
// clang-format off
#define UNISONO_CUDA_FUNCTIONS(F)                                                                  \
  F(init, "cuInit", (unsigned flags))                                                              \
  F(driver_version, "cuDriverGetVersion", (int* version))                                          \
  F(error_name, "cuGetErrorName", (DriverResult error, const char** name))                         \
  F(error_string, "cuGetErrorString", (DriverResult error, const char** text))                     \
  F(device_count, "cuDeviceGetCount", (int* count))                                                \
  F(device_get, "cuDeviceGet", (DeviceOrdinal* device, int ordinal))                               \
  F(device_name, "cuDeviceGetName", (char* name, int bytes, DeviceOrdinal device))                 \
  F(device_uuid, "cuDeviceGetUuid_v2", (Uuid* uuid, DeviceOrdinal device))                         \
  F(device_pci_address, "cuDeviceGetPCIBusId", (char* text, int bytes, DeviceOrdinal device))      \
  F(device_attribute, "cuDeviceGetAttribute", (int* value, int attribute, DeviceOrdinal device))   \
  F(device_can_access, "cuDeviceCanAccessPeer",                                                    \
    (int* can, DeviceOrdinal device, DeviceOrdinal peer))                                          \
  F(device_p2p_attribute, "cuDeviceGetP2PAttribute",                                               \
    (int* value, int attribute, DeviceOrdinal source, DeviceOrdinal destination))                  \
  F(context_retain, "cuDevicePrimaryCtxRetain", (ContextHandle** context, DeviceOrdinal device))   \
  F(context_release, "cuDevicePrimaryCtxRelease_v2", (DeviceOrdinal device))                       \
  F(context_push, "cuCtxPushCurrent_v2", (ContextHandle* context))                                 \
  F(context_pop, "cuCtxPopCurrent_v2", (ContextHandle** context))                                  \
  F(context_current, "cuCtxGetCurrent", (ContextHandle** context))                                 \
  F(context_device, "cuCtxGetDevice", (DeviceOrdinal* device))                                     \
  F(context_synchronize, "cuCtxSynchronize", ())                                                   \
  F(enable_peer, "cuCtxEnablePeerAccess", (ContextHandle* peer, unsigned flags))                   \
  F(allocate, "cuMemAlloc_v2", (DeviceAddress* address, std::size_t bytes))                        \
  F(free, "cuMemFree_v2", (DeviceAddress address))                                                 \
  F(host_register, "cuMemHostRegister_v2", (void* host, std::size_t bytes, unsigned flags))        \
  F(host_unregister, "cuMemHostUnregister", (void* host))                                          \
  F(host_address, "cuMemHostGetDevicePointer_v2",                                                  \
    (DeviceAddress* address, void* host, unsigned flags))                                          \
  F(copy_async, "cuMemcpyAsync",                                                                   \
    (DeviceAddress destination, DeviceAddress source, std::size_t bytes, StreamHandle* stream))    \
  F(set_bytes, "cuMemsetD8Async",                                                                  \
    (DeviceAddress address, unsigned char value, std::size_t bytes, StreamHandle* stream))         \
  F(ipc_export, "cuIpcGetMemHandle", (IpcHandle* handle, DeviceAddress address))                   \
  F(ipc_open, "cuIpcOpenMemHandle_v2",                                                             \
    (DeviceAddress* address, IpcHandle handle, unsigned flags))                                    \
  F(ipc_close, "cuIpcCloseMemHandle", (DeviceAddress address))                                     \
  F(pointer_attribute, "cuPointerGetAttribute",                                                    \
    (void* value, int attribute, DeviceAddress address))                                           \
  F(address_range, "cuMemGetAddressRange_v2",                                                      \
    (DeviceAddress* base, std::size_t* bytes, DeviceAddress address))                              \
  F(allocation_retain, "cuMemRetainAllocationHandle", (AllocationHandle* handle, void* address))   \
  F(allocation_create, "cuMemCreate",                                                              \
    (AllocationHandle* handle, std::size_t bytes, const AllocationProperties* properties,          \
     unsigned long long flags))                                                                    \
  F(allocation_release, "cuMemRelease", (AllocationHandle handle))                                 \
  F(allocation_export, "cuMemExportToShareableHandle",                                             \
    (void* shareable, AllocationHandle handle, int type, unsigned long long flags))                \
  F(allocation_import, "cuMemImportFromShareableHandle",                                           \
    (AllocationHandle* handle, void* shareable, int type))                                         \
  F(address_reserve, "cuMemAddressReserve",                                                        \
    (DeviceAddress* address, std::size_t bytes, std::size_t alignment, DeviceAddress wanted,       \
     unsigned long long flags))                                                                    \
  F(address_free, "cuMemAddressFree", (DeviceAddress address, std::size_t bytes))                  \
  F(address_map, "cuMemMap",                                                                       \
    (DeviceAddress address, std::size_t bytes, std::size_t offset, AllocationHandle handle,        \
     unsigned long long flags))                                                                    \
  F(address_unmap, "cuMemUnmap", (DeviceAddress address, std::size_t bytes))                       \
  F(address_allow, "cuMemSetAccess",                                                               \
    (DeviceAddress address, std::size_t bytes, const AccessDescription* access,                    \
     std::size_t count))                                                                           \
  F(module_load, "cuModuleLoadData", (ModuleHandle** module, const void* image))                   \
  F(module_unload, "cuModuleUnload", (ModuleHandle* module))                                       \
  F(module_function, "cuModuleGetFunction",                                                        \
    (FunctionHandle** function, ModuleHandle* module, const char* name))                           \
  F(occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessor",                                      \
    (int* blocks, FunctionHandle* function, int threads, std::size_t shared_bytes))                \
  F(function_attribute, "cuFuncGetAttribute",                                                      \
    (int* value, int attribute, FunctionHandle* function))                                         \
  F(set_function_attribute, "cuFuncSetAttribute",                                                  \
    (FunctionHandle* function, int attribute, int value))                                          \
  F(launch, "cuLaunchKernelEx",                                                                    \
    (const LaunchConfiguration* configuration, FunctionHandle* function, void** parameters,        \
     void** extra))                                                                                \
  F(stream_create, "cuStreamCreate", (StreamHandle** stream, unsigned flags))                      \
  F(stream_create_urgent, "cuStreamCreateWithPriority",                                            \
    (StreamHandle** stream, unsigned flags, int priority))                                         \
  F(stream_priorities, "cuCtxGetStreamPriorityRange", (int* least, int* greatest))                 \
  F(stream_destroy, "cuStreamDestroy_v2", (StreamHandle* stream))                                  \
  F(stream_synchronize, "cuStreamSynchronize", (StreamHandle* stream))                             \
  F(stream_query, "cuStreamQuery", (StreamHandle* stream))                                         \
  F(stream_wait_event, "cuStreamWaitEvent",                                                        \
    (StreamHandle* stream, EventHandle* event, unsigned flags))                                    \
  F(stream_context, "cuStreamGetCtx", (StreamHandle* stream, ContextHandle** context))             \
  F(stream_write, "cuStreamWriteValue64_v2",                                                       \
    (StreamHandle* stream, DeviceAddress address, std::uint64_t value, unsigned flags))            \
  F(stream_operations, "cuStreamBatchMemOp_v2",                                                    \
    (StreamHandle* stream, unsigned count, MemoryOperation* operations, unsigned flags))           \
  F(stream_is_capturing, "cuStreamIsCapturing", (StreamHandle* stream, int* status))               \
  F(capture_info, "cuStreamGetCaptureInfo_v2",                                                    \
    (StreamHandle* stream, int* status, unsigned long long* id, GraphHandle** graph,               \
     const void** dependencies, std::size_t* count))                                               \
  F(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", (int* mode))                       \
  F(capture_begin, "cuStreamBeginCapture_v2", (StreamHandle* stream, int mode))                    \
  F(capture_end, "cuStreamEndCapture", (StreamHandle* stream, GraphHandle** graph))                \
  F(graph_instantiate, "cuGraphInstantiateWithFlags",                                              \
    (GraphExecHandle** exec, GraphHandle* graph, unsigned long long flags))                        \
  F(graph_launch, "cuGraphLaunch", (GraphExecHandle* exec, StreamHandle* stream))                  \
  F(graph_exec_destroy, "cuGraphExecDestroy", (GraphExecHandle* exec))                             \
  F(graph_destroy, "cuGraphDestroy", (GraphHandle* graph))                                         \
  F(event_create, "cuEventCreate", (EventHandle** event, unsigned flags))                          \
  F(event_destroy, "cuEventDestroy_v2", (EventHandle* event))                                      \
  F(event_record, "cuEventRecord", (EventHandle* event, StreamHandle* stream))                     \
  F(event_query, "cuEventQuery", (EventHandle* event))                                             \
  F(event_elapsed, "cuEventElapsedTime", (float* ms, EventHandle* from, EventHandle* to))
// clang-format on

// Named as above; every pointer is set.
struct Driver {
// A declarator cannot be in parentheses. NOLINTBEGIN(bugprone-macro-parentheses)
#define UNISONO_DECLARE(name, symbol, parameters) DriverResult(*name) parameters = nullptr;
  UNISONO_CUDA_FUNCTIONS(UNISONO_DECLARE)
#undef UNISONO_DECLARE
  // NOLINTEND(bugprone-macro-parentheses)
};

// Loads and initialises the driver once in a process. Environment error, always the same: no
// library, a function missing from it (the driver is too old), or no device.
Result<const Driver*> driver();
// What driver() has loaded before; nullptr as long as nobody in this process needed it. Any thread.
const Driver* loaded_driver();

// Environment error naming the call and what the driver says of it.
Status check(const Driver& driver, DriverResult result, std::string_view what);

}  // namespace unisono::sys::cuda
