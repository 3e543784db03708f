#include "sys/cuda/device.h"

#include <array>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/try.h"
#include "sys/cuda/nvml.h"

namespace unisono::sys::cuda {
namespace {

// CUDA 12.3: what is captured of it becomes an edge of the graph.
constexpr int first_driver_with_overlap_in_graphs = 12030;

// Values of CUdevice_attribute, CUpointer_attribute and flags, as the ABI has them.
constexpr int attribute_sms = 16;
constexpr int attribute_capability_major = 75;
constexpr int attribute_capability_minor = 76;
constexpr int pointer_memory_type = 2;
constexpr int pointer_is_managed = 8;
constexpr int pointer_device_ordinal = 9;
constexpr int memory_type_device = 2;
constexpr unsigned ipc_lazy_peer_access = 1;
constexpr int capture_relaxed = 2;
constexpr unsigned stream_non_blocking = 1;

}  // namespace

Result<std::shared_ptr<const Device>> Device::open(int ordinal) {
  UNISONO_ASSIGN(const Driver* driver, cuda::driver());
  int count = 0;
  UNISONO_TRY(cuda::check(*driver, driver->device_count(&count), "counting CUDA devices"));
  if (ordinal < 0 || ordinal >= count)
    return misuse("CUDA device ", ordinal, " does not exist; this process sees ", count,
                  " devices");
  std::shared_ptr<Device> device(new Device);
  device->driver_ = driver;
  device->ordinal_ = ordinal;
  UNISONO_TRY(device->check(driver->device_get(&device->handle_, ordinal), "cuDeviceGet"));
  std::array<char, 256> name{};
  UNISONO_TRY(device->check(
      driver->device_name(name.data(), static_cast<int>(name.size()) - 1, device->handle_),
      "cuDeviceGetName"));
  device->name_ = name.data();
  UNISONO_TRY(
      device->check(driver->device_uuid(&device->uuid_, device->handle_), "cuDeviceGetUuid"));
  const auto attribute = [&](int which, int& value) {
    return device->check(driver->device_attribute(&value, which, device->handle_),
                         "cuDeviceGetAttribute");
  };
  int major = 0;
  int minor = 0;
  UNISONO_TRY(attribute(attribute_sms, device->sms_));
  UNISONO_TRY(attribute(attribute_capability_major, major));
  UNISONO_TRY(attribute(attribute_capability_minor, minor));
  device->compute_capability_ = 10 * major + minor;
  UNISONO_TRY(device->check(driver->context_retain(&device->context_, device->handle_),
                            str("making a context on CUDA device ", ordinal)));
  {
    const Current current(*device);
    UNISONO_TRY(device->check(driver->stream_create(&device->service_stream_, stream_non_blocking),
                              "making a stream"));
  }
  return std::shared_ptr<const Device>(std::move(device));
}

Result<int> Device::current_ordinal() {
  UNISONO_ASSIGN(const Driver* driver, cuda::driver());
  ContextHandle* context = nullptr;
  UNISONO_TRY(cuda::check(*driver, driver->context_current(&context), "cuCtxGetCurrent"));
  if (context == nullptr) return 0;
  DeviceOrdinal device = 0;
  UNISONO_TRY(cuda::check(*driver, driver->context_device(&device), "cuCtxGetDevice"));
  return device;
}

Result<int> Device::ordinal_of(StreamHandle* stream) {
  if (is_default(stream)) return current_ordinal();
  UNISONO_ASSIGN(const Driver* driver, cuda::driver());
  ContextHandle* context = nullptr;
  UNISONO_TRY(
      cuda::check(*driver, driver->stream_context(stream, &context), "looking at a stream"));
  UNISONO_TRY(cuda::check(*driver, driver->context_push(context), "looking at a stream"));
  auto ordinal = current_ordinal();
  driver->context_pop(&context);
  return ordinal;
}

Device::~Device() {
  if (context_ == nullptr) return;
  if (service_stream_ != nullptr) {
    const Current current(*this);
    driver_->stream_destroy(service_stream_);
  }
  driver_->context_release(handle_);
}

Status Device::copy(DeviceAddress destination, DeviceAddress source, std::size_t bytes) const {
  const Current current(*this);
  UNISONO_TRY(check(driver_->copy_async(destination, source, bytes, service_stream_),
                    str("copying ", bytes, " bytes")));
  return check(driver_->stream_synchronize(service_stream_), str("copying ", bytes, " bytes"));
}

Status Device::check(DriverResult result, std::string_view what) const {
  if (result == driver_success) [[likely]]
    return {};
  return cuda::check(*driver_, result, str(what, " on CUDA device ", ordinal_));
}

std::optional<DeviceOrdinal> Device::find(const Uuid& uuid) const {
  int count = 0;
  driver_->device_count(&count);
  for (int i = 0; i < count; ++i) {
    DeviceOrdinal handle = 0;
    Uuid found;
    if (driver_->device_get(&handle, i) == driver_success &&
        driver_->device_uuid(&found, handle) == driver_success && found == uuid)
      return handle;
  }
  return std::nullopt;
}

bool Device::can_access(const Uuid& peer) const {
  if (peer == uuid_) return true;
  const auto handle = find(peer);
  // A process that sees only its own device cannot ask; opening the memory tells.
  if (!handle) return true;
  int can = 0;
  return driver_->device_can_access(&can, handle_, *handle) == driver_success && can != 0;
}

PeerLink Device::link_to(const Uuid& peer) const {
  if (peer == uuid_) return PeerLink::same_device;
  if (const auto is_nvlink = nvlink_between(uuid_, peer))
    return *is_nvlink ? PeerLink::nvlink : PeerLink::other;
  const auto handle = find(peer);
  // Of the links between GPUs, NVLink alone carries atomics.
  int atomics = 0;
  if (!handle || driver_->device_p2p_attribute(&atomics, p2p_native_atomics, handle_, *handle) !=
                     driver_success)
    return PeerLink::unknown;
  return atomics != 0 ? PeerLink::nvlink : PeerLink::other;
}

std::string_view name(PeerLink link) {
  constexpr std::array<std::string_view, peer_link_count> names{"the same device", "NVLink",
                                                                "no NVLink", "an unknown link"};
  return names[static_cast<std::size_t>(link)];
}

Status Device::enable_peer(const Device& peer) const {
  if (peer.context_ == context_) return {};
  const Current current(*this);
  const DriverResult result = driver_->enable_peer(peer.context_, 0);
  if (result == driver_peer_access_already_enabled) return {};
  return check(result, str("reaching the memory of device ", peer.ordinal_));
}

Current::Current(const Device& device) : device_(device), capture_mode_(capture_relaxed) {
  device_.driver().context_push(device_.context());
  device_.driver().exchange_capture_mode(&capture_mode_);
}

Current::~Current() {
  device_.driver().exchange_capture_mode(&capture_mode_);
  ContextHandle* popped = nullptr;
  device_.driver().context_pop(&popped);
}

Result<Memory> Memory::allocate(std::shared_ptr<const Device> device, std::size_t bytes) {
  const Current current(*device);
  const Driver& driver = device->driver();
  Memory memory;
  UNISONO_TRY(
      device->check(driver.allocate(&memory.address_, bytes), str("allocating ", bytes, " bytes")));
  memory.bytes_ = bytes;
  memory.device_ = std::move(device);
  StreamHandle* stream = memory.device_->service_stream();
  UNISONO_TRY(memory.device_->check(driver.set_bytes(memory.address_, 0, bytes, stream),
                                    "clearing memory"));
  UNISONO_TRY(memory.device_->check(driver.stream_synchronize(stream), "clearing memory"));
  return memory;
}

Memory::~Memory() {
  if (address_ == 0) return;
  const Current current(*device_);
  device_->driver().free(address_);
}

void Memory::swap(Memory& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
}

Result<IpcHandle> Memory::export_handle() const {
  const Current current(*device_);
  IpcHandle handle{};
  UNISONO_TRY(device_->check(device_->driver().ipc_export(&handle, address_),
                             "sharing memory with other processes"));
  return handle;
}

Result<ImportedMemory> ImportedMemory::open(std::shared_ptr<const Device> device,
                                            const IpcHandle& handle) {
  const Current current(*device);
  ImportedMemory memory;
  UNISONO_TRY(
      device->check(device->driver().ipc_open(&memory.address_, handle, ipc_lazy_peer_access),
                    "opening another process's device memory"));
  memory.device_ = std::move(device);
  DeviceAddress base = 0;
  std::size_t bytes = 0;
  if (memory.device_->driver().address_range(&base, &bytes, memory.address_) == driver_success)
    memory.bytes_ = bytes - (memory.address_ - base);
  return memory;
}

ImportedMemory::~ImportedMemory() {
  if (address_ == 0) return;
  const Current current(*device_);
  device_->driver().ipc_close(address_);
}

void ImportedMemory::swap(ImportedMemory& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
}

Result<Module> Module::load(std::shared_ptr<const Device> device, const void* image) {
  const Current current(*device);
  Module module;
  UNISONO_TRY(
      device->check(device->driver().module_load(&module.module_, image),
                    str("loading kernels for compute capability ", device->compute_capability())));
  module.device_ = std::move(device);
  return module;
}

Module::~Module() {
  if (module_ == nullptr) return;
  const Current current(*device_);
  device_->driver().module_unload(module_);
}

void Module::swap(Module& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(module_, other.module_);
}

Result<Kernel> Module::kernel(const char* name, bool waits_by_itself) const {
  const Current current(*device_);
  FunctionHandle* function = nullptr;
  UNISONO_TRY(device_->check(device_->driver().module_function(&function, module_, name),
                             str("finding the kernel ", name)));
  return Kernel(*device_, function, waits_by_itself);
}

Kernel::Kernel(const Device& device, FunctionHandle* function, bool waits_by_itself)
    : device_(&device), function_(function) {
  // What was compiled for less knows no such wait, on whatever device it runs.
  int compiled_for = 0;
  int version = 0;
  const Driver& driver = device.driver();
  is_for_hopper_ =
      driver.function_attribute(&compiled_for, function_ptx_version, function) == driver_success &&
      compiled_for >= 90;
  waits_by_itself_ = waits_by_itself && is_for_hopper_ &&
                     driver.driver_version(&version) == driver_success &&
                     version >= first_driver_with_overlap_in_graphs;
}

Status Kernel::take_shared_memory(std::size_t bytes) {
  const Current current(*device_);
  UNISONO_TRY(device_->check(device_->driver().set_function_attribute(
                                 function_, function_shared_bytes, static_cast<int>(bytes)),
                             "asking for a kernel's shared memory"));
  shared_bytes_ = static_cast<unsigned>(bytes);
  return {};
}

DriverResult Kernel::launch(unsigned blocks, unsigned threads, StreamHandle* stream,
                            void** parameters) const {
  const Current current(*device_);
  LaunchAttribute overlap{.kind = LaunchAttribute::programmatic_stream_serialization,
                          .padding = 0,
                          .value = 1,
                          .rest = {}};
  const LaunchConfiguration configuration{.grid = {blocks, 1, 1},
                                          .block = {threads, 1, 1},
                                          .shared_bytes = shared_bytes_,
                                          .stream = stream,
                                          .attributes = &overlap,
                                          .attribute_count = waits_by_itself_ ? 1U : 0U};
  return device_->driver().launch(&configuration, function_, parameters, nullptr);
}

Result<std::string> pci_address_of(int ordinal) {
  UNISONO_ASSIGN(const Driver* const driver, cuda::driver());
  DeviceOrdinal handle = 0;
  UNISONO_TRY(cuda::check(*driver, driver->device_get(&handle, ordinal),
                          str("opening CUDA device ", ordinal)));
  std::array<char, 32> text{};
  UNISONO_TRY(cuda::check(
      *driver, driver->device_pci_address(text.data(), static_cast<int>(text.size()) - 1, handle),
      str("cuDeviceGetPCIBusId of CUDA device ", ordinal)));
  return std::string(text.data());
}

PointerKind kind_of(const Driver& driver, const void* pointer) {
  const auto address = reinterpret_cast<DeviceAddress>(pointer);
  unsigned type = 0;
  PointerKind kind;
  if (driver.pointer_attribute(&type, pointer_memory_type, address) != driver_success) return kind;
  kind.is_device = type == static_cast<unsigned>(memory_type_device);
  if (driver.pointer_attribute(&kind.ordinal, pointer_device_ordinal, address) != driver_success)
    kind.ordinal = -1;
  return kind;
}

bool is_managed(const Driver& driver, const void* pointer) {
  unsigned value = 0;
  return driver.pointer_attribute(&value, pointer_is_managed,
                                  reinterpret_cast<DeviceAddress>(pointer)) == driver_success &&
         value != 0;
}

}  // namespace unisono::sys::cuda
