// One CUDA device as a process uses it: its primary context, and what is made in it.
//
// Everything here is thin: a call, its check, and the release. Objects hold their Device.
#pragma once

#include <unisono/result.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "sys/cuda/driver.h"

namespace unisono::sys::cuda {

// What connects two devices of a machine.
enum class PeerLink : std::uint8_t {
  same_device,
  nvlink,
  other,    // PCIe, or what is no NVLink otherwise
  unknown,  // neither the driver nor the management library knows
};
inline constexpr int peer_link_count = 4;
std::string_view name(PeerLink link);

class Device {
 public:
  // Retains the primary context, which PyTorch and the CUDA runtime use too.
  static Result<std::shared_ptr<const Device>> open(int ordinal);
  // The device of the context that is current on this thread; device 0 where none is.
  static Result<int> current_ordinal();
  // The device of a stream's context; for default streams, that of the current one.
  static Result<int> ordinal_of(StreamHandle* stream);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Driver& driver() const { return *driver_; }
  int ordinal() const { return ordinal_; }
  ContextHandle* context() const { return context_; }
  const Uuid& uuid() const { return uuid_; }
  const std::string& name() const { return name_; }
  int sms() const { return sms_; }
  // 90 for compute capability 9.0.
  int compute_capability() const { return compute_capability_; }
  // This object's own, for setting things up; other streams neither wait for it nor it for them.
  StreamHandle* service_stream() const { return service_stream_; }
  // Copies between any memories on the service stream, and waits for it.
  Status copy(DeviceAddress destination, DeviceAddress source, std::size_t bytes) const;
  Status upload(DeviceAddress destination, const void* source, std::size_t bytes) const {
    return copy(destination, reinterpret_cast<DeviceAddress>(source), bytes);
  }

  // Whether kernels here can reach the memory of that device of this machine.
  bool can_access(const Uuid& peer) const;
  // What leads to that device of this machine.
  PeerLink link_to(const Uuid& peer) const;
  // Lets kernels of this context reach memory of `peer`'s, in this process.
  Status enable_peer(const Device& peer) const;
  Status check(DriverResult result, std::string_view what) const;

 private:
  Device() = default;
  // The device here that has the UUID; nothing if this process does not see it.
  std::optional<DeviceOrdinal> find(const Uuid& uuid) const;

  const Driver* driver_ = nullptr;
  int ordinal_ = 0;
  DeviceOrdinal handle_ = 0;
  ContextHandle* context_ = nullptr;
  Uuid uuid_;
  std::string name_;
  int sms_ = 0;
  int compute_capability_ = 0;
  StreamHandle* service_stream_ = nullptr;
};

// The legacy and the per-thread default stream belong to whichever context is current.
inline bool is_default(const StreamHandle* stream) {
  return reinterpret_cast<std::uintptr_t>(stream) <= 2;
}

// Makes the device's context current on this thread while alive, and lets allocations be made while
// a stream of this thread is being captured.
class Current {
 public:
  explicit Current(const Device& device);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Device& device_;
  int capture_mode_;
};

// Device memory, zeroed at first.
class Memory {
 public:
  static Result<Memory> allocate(std::shared_ptr<const Device> device, std::size_t bytes);
  Memory() = default;
  ~Memory();
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    swap(other);
    return *this;
  }

  DeviceAddress address() const { return address_; }
  std::size_t bytes() const { return bytes_; }
  // What another process of this machine opens it by.
  Result<IpcHandle> export_handle() const;

 private:
  void swap(Memory& other) noexcept;

  std::shared_ptr<const Device> device_;
  DeviceAddress address_ = 0;
  std::size_t bytes_ = 0;
};

// Another process's device memory, opened here.
class ImportedMemory {
 public:
  static Result<ImportedMemory> open(std::shared_ptr<const Device> device, const IpcHandle& handle);
  ImportedMemory() = default;
  ~ImportedMemory();
  ImportedMemory(ImportedMemory&& other) noexcept { swap(other); }
  ImportedMemory& operator=(ImportedMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  DeviceAddress address() const { return address_; }
  // No limit where the driver does not know the size of another process's memory.
  std::size_t bytes() const { return bytes_; }

 private:
  void swap(ImportedMemory& other) noexcept;

  std::shared_ptr<const Device> device_;
  DeviceAddress address_ = 0;
  std::size_t bytes_ = SIZE_MAX;
};

// Host memory that kernels load and store, zeroed at first. It stays this process's when a program
// resets the device.
class MappedHostMemory {
 public:
  static Result<MappedHostMemory> allocate(std::shared_ptr<const Device> device, std::size_t bytes);
  MappedHostMemory() = default;
  ~MappedHostMemory();
  MappedHostMemory(MappedHostMemory&& other) noexcept { swap(other); }
  MappedHostMemory& operator=(MappedHostMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  std::byte* data() const { return data_; }
  DeviceAddress address() const { return address_; }

 private:
  void swap(MappedHostMemory& other) noexcept;

  std::shared_ptr<const Device> device_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  DeviceAddress address_ = 0;
};

// Host memory of another owner, whole pages, that kernels load and store as long as this lives.
// Forked processes do not have it: a page that they copied would no longer be the device's.
class RegisteredHostMemory {
 public:
  static Result<RegisteredHostMemory> make(std::shared_ptr<const Device> device, void* data,
                                           std::size_t bytes);
  RegisteredHostMemory() = default;
  ~RegisteredHostMemory();
  RegisteredHostMemory(RegisteredHostMemory&& other) noexcept { swap(other); }
  RegisteredHostMemory& operator=(RegisteredHostMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  DeviceAddress address() const { return address_; }

 private:
  void swap(RegisteredHostMemory& other) noexcept;

  std::shared_ptr<const Device> device_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  DeviceAddress address_ = 0;
};

// A kernel of a module, which must outlive it.
class Kernel {
 public:
  Kernel() = default;
  // One that waits by itself for the kernel before it on the stream (device/ptx/grid.cuh) is
  // started while that one ends.
  Kernel(const Device& device, FunctionHandle* function, bool waits_by_itself);
  FunctionHandle* function() const { return function_; }
  // Compiled for compute capability 9.0 or newer.
  bool is_for_hopper() const { return is_for_hopper_; }
  // Blocks get so much shared memory, beyond what the kernel itself declares.
  Status take_shared_memory(std::size_t bytes);
  std::size_t shared_bytes() const { return shared_bytes_; }
  // By one-dimensional blocks.
  DriverResult launch(unsigned blocks, unsigned threads, StreamHandle* stream,
                      void** parameters) const;

 private:
  const Device* device_ = nullptr;
  FunctionHandle* function_ = nullptr;
  bool is_for_hopper_ = false;
  bool waits_by_itself_ = false;
  unsigned shared_bytes_ = 0;
};

// Compiled kernels, loaded into a context.
class Module {
 public:
  // `image` is a fat binary, or PTX that ends in 0.
  static Result<Module> load(std::shared_ptr<const Device> device, const void* image);
  Module() = default;
  ~Module();
  Module(Module&& other) noexcept { swap(other); }
  Module& operator=(Module&& other) noexcept {
    swap(other);
    return *this;
  }
  Result<Kernel> kernel(const char* name, bool waits_by_itself = false) const;

 private:
  void swap(Module& other) noexcept;

  std::shared_ptr<const Device> device_;
  ModuleHandle* module_ = nullptr;
};

// "0000:07:00.0". The device is not opened for it.
Result<std::string> pci_address_of(int ordinal);

// Where an address points.
struct PointerKind {
  bool is_device = false;  // memory that kernels may use, of device `ordinal`
  int ordinal = -1;
};
PointerKind kind_of(const Driver& driver, const void* pointer);
// Whether the host's processors load and store that device memory, too.
bool is_managed(const Driver& driver, const void* pointer);

}  // namespace unisono::sys::cuda
