#include "sys/cuda/share.h"

#include <unistd.h>

#include <utility>

#include "base/error.h"
#include "base/try.h"
#include "sys/cross_memory.h"

namespace unisono::sys::cuda {
namespace {

// As the ABI has them.
constexpr int pointer_buffer_id = 7;
constexpr int handle_type_descriptor = 1;
constexpr int location_device = 1;
constexpr int access_read_write = 3;

}  // namespace

std::optional<Allocation> allocation_at(const Device& device, DeviceAddress address) {
  const Current current(device);
  const Driver& driver = device.driver();
  Allocation found;
  if (driver.address_range(&found.base, &found.bytes, address) != driver_success ||
      driver.pointer_attribute(&found.identity, pointer_buffer_id, address) != driver_success ||
      found.bytes <= address - found.base)
    return std::nullopt;
  return found;
}

bool is_there(const Device& device, const Allocation& allocation) {
  const Current current(device);
  std::uint64_t identity = 0;
  return device.driver().pointer_attribute(&identity, pointer_buffer_id, allocation.base) ==
             driver_success &&
         identity == allocation.identity;
}

ExportedAllocation ExportedAllocation::make(const Device& device, const Allocation& allocation) {
  const Current current(device);
  const Driver& driver = device.driver();
  ExportedAllocation out;
  Shareable& shareable = out.shareable_;
  if (driver.ipc_export(&shareable.handle, allocation.base) == driver_success) {
    shareable.kind = Shareable::Kind::handle;
    return out;
  }
  AllocationHandle handle = 0;
  if (driver.allocation_retain(&handle, reinterpret_cast<void*>(allocation.base)) != driver_success)
    return out;
  if (driver.allocation_export(&shareable.descriptor, handle, handle_type_descriptor, 0) ==
      driver_success) {
    shareable.kind = Shareable::Kind::descriptor;
    allow_cross_memory_reads();
  }
  driver.allocation_release(handle);
  return out;
}

ExportedAllocation::~ExportedAllocation() {
  if (shareable_.kind == Shareable::Kind::descriptor) close(shareable_.descriptor);
}

Result<MappedPieces> MappedPieces::map(const std::shared_ptr<const Device>& device,
                                       const ProcessIdentity& owner,
                                       std::span<const Piece> pieces) {
  const Current current(*device);
  const Driver& driver = device->driver();
  MappedPieces out;
  std::size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes;
  UNISONO_TRY(device->check(driver.address_reserve(&out.address_, bytes, 0, 0, 0),
                            str("reserving ", bytes, " bytes of addresses")));
  out.bytes_ = bytes;
  out.device_ = device;
  for (const Piece& piece : pieces) UNISONO_TRY(out.add(owner, piece));
  const AccessDescription access{
      .location_type = location_device, .location = device->ordinal(), .flags = access_read_write};
  UNISONO_TRY(device->check(driver.address_allow(out.address_, bytes, &access, 1),
                            "reaching another process's memory"));
  return out;
}

Status MappedPieces::add(const ProcessIdentity& owner, const Piece& piece) {
  UNISONO_ASSIGN(const int descriptor, copy_descriptor(owner, piece.descriptor));
  const Driver& driver = device_->driver();
  AllocationHandle handle = 0;
  const DriverResult imported = driver.allocation_import(
      &handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
      handle_type_descriptor);
  close(descriptor);
  UNISONO_TRY(device_->check(imported, "opening another process's memory"));
  const DriverResult mapped = driver.address_map(address_ + mapped_, piece.bytes, 0, handle, 0);
  // The mapping holds the memory.
  driver.allocation_release(handle);
  UNISONO_TRY(device_->check(mapped, "mapping another process's memory"));
  mapped_ += piece.bytes;
  return {};
}

MappedPieces::~MappedPieces() {
  if (address_ == 0) return;
  const Current current(*device_);
  if (mapped_ > 0) device_->driver().address_unmap(address_, mapped_);
  device_->driver().address_free(address_, bytes_);
}

void MappedPieces::swap(MappedPieces& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_, other.mapped_);
}

}  // namespace unisono::sys::cuda
