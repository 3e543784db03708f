// Host memory that kernels load and store.

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/try.h"
#include "sys/cuda/device.h"

namespace unisono::sys::cuda {
namespace {

// Flags of cuMemHostRegister, as the ABI has them.
constexpr unsigned host_portable = 1;
constexpr unsigned host_mapped = 2;

std::size_t whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

Status lock_pages(const Device& device, void* data, std::size_t bytes) {
  const Current current(device);
  return device.check(device.driver().host_register(data, bytes, host_portable | host_mapped),
                      str("locking ", bytes, " bytes of host memory for kernels"));
}

// The pages are locked.
Status find_address(const Device& device, void* data, DeviceAddress& out) {
  const Current current(device);
  return device.check(device.driver().host_address(&out, data, 0),
                      "mapping host memory for kernels");
}

void unlock_pages(const Device& device, void* data) {
  const Current current(device);
  device.driver().host_unregister(data);
}

}  // namespace

Result<MappedHostMemory> MappedHostMemory::allocate(std::shared_ptr<const Device> device,
                                                    std::size_t bytes) {
  bytes = whole_pages(bytes);
  // Shared: a page that a forked process copies would no longer be the device's.
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return environment_error("allocating ", bytes,
                             " bytes of host memory for kernels: ", std::strerror(errno));
  MappedHostMemory memory;
  memory.data_ = static_cast<std::byte*>(data);
  memory.bytes_ = bytes;
  memory.device_ = std::move(device);
  UNISONO_TRY(lock_pages(*memory.device_, data, bytes));
  UNISONO_TRY(find_address(*memory.device_, data, memory.address_));
  return memory;
}

MappedHostMemory::~MappedHostMemory() {
  if (data_ == nullptr) return;
  unlock_pages(*device_, data_);
  munmap(data_, bytes_);
}

void MappedHostMemory::swap(MappedHostMemory& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(address_, other.address_);
}

Result<RegisteredHostMemory> RegisteredHostMemory::make(std::shared_ptr<const Device> device,
                                                        void* data, std::size_t bytes) {
  bytes = whole_pages(bytes);
  UNISONO_TRY(lock_pages(*device, data, bytes));
  RegisteredHostMemory memory;
  memory.data_ = data;
  memory.bytes_ = bytes;
  memory.device_ = std::move(device);
  madvise(data, bytes, MADV_DONTFORK);
  UNISONO_TRY(find_address(*memory.device_, data, memory.address_));
  return memory;
}

RegisteredHostMemory::~RegisteredHostMemory() {
  if (data_ == nullptr) return;
  unlock_pages(*device_, data_);
  madvise(data_, bytes_, MADV_DOFORK);
}

void RegisteredHostMemory::swap(RegisteredHostMemory& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(address_, other.address_);
}

}  // namespace unisono::sys::cuda
