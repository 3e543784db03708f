// Device memory for many connections, and the memory of peers: exported, opened and mapped once for
// each large piece, not for each connection.
#pragma once

#include <unisono/result.h>

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "sys/cuda/device.h"
#include "sys/process.h"

namespace unisono::transport::nvlink {

// Where a stretch of device memory is, told to a peer.
struct Location {
  sys::ProcessIdentity process;
  sys::cuda::Uuid device;
  std::int32_t ordinal = 0;  // in its own process
  std::uint64_t piece = 0;   // names the piece in its process; never used again
  std::uint64_t offset = 0;
  sys::cuda::IpcHandle handle{};
};

// Any thread.
class Pool {
 public:
  explicit Pool(std::shared_ptr<const sys::cuda::Device> device) : device_(std::move(device)) {}

  // A stretch of own memory, zeroed and aligned as a DeviceLink says, taken until it is destroyed.
  class Stretch {
   public:
    Stretch() = default;
    sys::cuda::DeviceAddress address() const;
    Location location() const;

   private:
    friend class Pool;
    struct Piece;
    std::shared_ptr<Piece> piece_;
    std::uint64_t offset_ = 0;
  };
  Result<Stretch> take(std::size_t bytes);

  // A peer's memory in this process: its address stays valid while the object lives, also that of a
  // peer in this process which has closed its end: a kernel that its stream has held up may still
  // store there.
  class Mapping {
   public:
    sys::cuda::DeviceAddress address() const { return address_; }

   private:
    friend class Pool;
    std::shared_ptr<const void> memory_;
    sys::cuda::DeviceAddress address_ = 0;
  };
  // What `peer` said of its memory: a peer error that names it unless `bytes` are there, an
  // environment error where its device cannot be reached.
  Result<Mapping> map(int peer, const Location& location, std::size_t bytes);

 private:
  using PieceName = std::pair<std::int32_t, std::uint64_t>;  // process id, piece
  // Of all pools of this process, by name.
  struct OwnPieces;
  static OwnPieces& own_pieces();

  std::shared_ptr<const sys::cuda::Device> device_;
  std::mutex mutex_;
  std::weak_ptr<Stretch::Piece> newest_;  // where the next stretch is cut from
  std::map<PieceName, std::weak_ptr<sys::cuda::ImportedMemory>> imported_;
};

}  // namespace unisono::transport::nvlink
