#include "transport/nvlink/pool.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "base/try.h"
#include "transport/mapped_link.h"

namespace unisono::transport::nvlink {
namespace {

// The driver takes memory in pieces of 2 MiB.
constexpr std::size_t piece_grain = std::size_t{2} << 20;
constexpr std::size_t stretch_grain = DeviceLink::alignment;

std::size_t round_up(std::size_t bytes, std::size_t grain) {
  return (bytes + grain - 1) / grain * grain;
}

// Nothing of a location is trusted.
Status check_stretch(int peer, const Location& location, std::size_t bytes,
                     std::size_t piece_bytes) {
  if (location.offset % stretch_grain == 0 && bytes <= piece_bytes &&
      location.offset <= piece_bytes - bytes)
    return {};
  return peer_error(peer, bytes, " bytes at ", location.offset, " of device memory of rank ", peer,
                    " cannot be there: it has ", piece_bytes,
                    " bytes, and connections begin at multiples of ", stretch_grain);
}

std::uint64_t next_piece() {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

// Freed when its last stretch goes.
struct Pool::Stretch::Piece {
  std::shared_ptr<const sys::cuda::Device> device;
  sys::cuda::Memory memory;
  sys::cuda::IpcHandle handle{};
  std::uint64_t name = 0;
  std::size_t used = 0;
};

struct Pool::OwnPieces {
  std::mutex mutex;
  std::map<std::uint64_t, std::weak_ptr<Stretch::Piece>> pieces;

  void add(const std::shared_ptr<Stretch::Piece>& piece) {
    const std::lock_guard lock(mutex);
    std::erase_if(pieces, [](const auto& entry) { return entry.second.expired(); });
    pieces[piece->name] = piece;
  }
  std::shared_ptr<Stretch::Piece> find(std::uint64_t name) {
    const std::lock_guard lock(mutex);
    const auto found = pieces.find(name);
    return found == pieces.end() ? nullptr : found->second.lock();
  }
};

Pool::OwnPieces& Pool::own_pieces() {
  static OwnPieces all;
  return all;
}

sys::cuda::DeviceAddress Pool::Stretch::address() const {
  return piece_->memory.address() + offset_;
}

Location Pool::Stretch::location() const {
  return {.process = sys::this_process(),
          .device = piece_->device->uuid(),
          .ordinal = piece_->device->ordinal(),
          .piece = piece_->name,
          .offset = offset_,
          .handle = piece_->handle};
}

Result<Pool::Stretch> Pool::take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::size_t needed = round_up(bytes, stretch_grain);
  std::shared_ptr<Stretch::Piece> piece = newest_.lock();
  if (!piece || piece->used + needed > piece->memory.bytes()) {
    piece = std::make_shared<Stretch::Piece>();
    piece->device = device_;
    UNISONO_ASSIGN(piece->memory,
                   sys::cuda::Memory::allocate(device_, round_up(needed, piece_grain)));
    UNISONO_ASSIGN(piece->handle, piece->memory.export_handle());
    piece->name = next_piece();
    own_pieces().add(piece);
    newest_ = piece;
  }
  Stretch stretch;
  stretch.offset_ = piece->used;
  piece->used += needed;
  stretch.piece_ = std::move(piece);
  return stretch;
}

Result<Pool::Mapping> Pool::map(int peer, const Location& location, std::size_t bytes) {
  if (!device_->can_access(location.device))
    return environment_error("CUDA device ", device_->ordinal(),
                             " cannot access the memory of device ", location.ordinal, " of rank ",
                             peer, " on the same host");
  Mapping mapping;
  if (location.process == sys::this_process()) {
    UNISONO_ASSIGN(const auto owner, sys::cuda::Device::open(location.ordinal));
    UNISONO_TRY(device_->enable_peer(*owner));
    const std::shared_ptr<Stretch::Piece> piece = own_pieces().find(location.piece);
    if (!piece)
      return peer_error(peer, "rank ", peer, ", in this process, has freed its device memory");
    UNISONO_TRY(check_stretch(peer, location, bytes, piece->memory.bytes()));
    mapping.address_ = piece->memory.address() + location.offset;
    mapping.memory_ = piece;
    return mapping;
  }
  const std::lock_guard lock(mutex_);
  auto& known = imported_[{location.process.pid, location.piece}];
  std::shared_ptr<sys::cuda::ImportedMemory> memory = known.lock();
  if (!memory) {
    UNISONO_ASSIGN(auto opened, sys::cuda::ImportedMemory::open(device_, location.handle));
    memory = std::make_shared<sys::cuda::ImportedMemory>(std::move(opened));
    known = memory;
  }
  UNISONO_TRY(check_stretch(peer, location, bytes, memory->bytes()));
  mapping.address_ = memory->address() + location.offset;
  mapping.memory_ = std::move(memory);
  return mapping;
}

}  // namespace unisono::transport::nvlink
