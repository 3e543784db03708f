// Memory that others have allocated, told apart from what lies at its addresses later, and shared
// between processes of a machine whatever call it came from.
#pragma once

#include <unisono/result.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sys/cuda/device.h"
#include "sys/process.h"

namespace unisono::sys::cuda {

// What the driver has at some addresses: one allocation, or one piece that was mapped there.
struct Allocation {
  DeviceAddress base = 0;
  std::size_t bytes = 0;
  std::uint64_t identity = 0;  // no other memory of the process ever has it
};

// Nothing where there is no device memory.
std::optional<Allocation> allocation_at(const Device& device, DeviceAddress address);
// Whether it is still what lies there. Some 100 ns.
bool is_there(const Device& device, const Allocation& allocation);

// By what another process maps an allocation.
struct Shareable {
  enum class Kind : std::uint32_t {
    nothing,     // it cannot be shared
    handle,      // of cuMemAlloc: by the driver's handle
    descriptor,  // of cuMemCreate: by a file descriptor of the owner's
  };
  Kind kind = Kind::nothing;
  std::int32_t descriptor = -1;
  IpcHandle handle{};
};

// Holds the descriptor.
class ExportedAllocation {
 public:
  static ExportedAllocation make(const Device& device, const Allocation& allocation);
  ExportedAllocation() = default;
  ~ExportedAllocation();
  ExportedAllocation(ExportedAllocation&& other) noexcept { swap(other); }
  ExportedAllocation& operator=(ExportedAllocation&& other) noexcept {
    swap(other);
    return *this;
  }
  const Shareable& shareable() const { return shareable_; }

 private:
  void swap(ExportedAllocation& other) noexcept { std::swap(shareable_, other.shareable_); }
  Shareable shareable_;
};

// Pieces of another process's memory, one after another, mapped here. Each is shared by a
// descriptor.
class MappedPieces {
 public:
  struct Piece {
    std::size_t bytes;
    std::int32_t descriptor;
  };
  static Result<MappedPieces> map(const std::shared_ptr<const Device>& device,
                                  const ProcessIdentity& owner, std::span<const Piece> pieces);
  MappedPieces() = default;
  ~MappedPieces();
  MappedPieces(MappedPieces&& other) noexcept { swap(other); }
  MappedPieces& operator=(MappedPieces&& other) noexcept {
    swap(other);
    return *this;
  }
  DeviceAddress address() const { return address_; }

 private:
  void swap(MappedPieces& other) noexcept;
  Status add(const ProcessIdentity& owner, const Piece& piece);

  std::shared_ptr<const Device> device_;
  DeviceAddress address_ = 0;
  std::size_t bytes_ = 0;   // reserved
  std::size_t mapped_ = 0;  // of them, from the beginning
};

}  // namespace unisono::sys::cuda
