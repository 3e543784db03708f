// NCCL as a peer of the bench: found at run time, by the functions and numbers of its public
// interface.
#pragma once

#include <unisono/communicator.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

namespace unisono::python {

using NcclId = std::array<char, 128>;

// Device memory that NCCL made, of a kind that it registers with its peers.
class NcclMemory {
 public:
  NcclMemory() = default;
  NcclMemory(NcclMemory&& other) noexcept { *this = std::move(other); }
  NcclMemory& operator=(NcclMemory&& other) noexcept;
  ~NcclMemory();

  const void* data() const { return data_; }

 private:
  friend class NcclPeer;
  NcclMemory(void* data, int (*free)(void*)) : data_(data), free_(free) {}
  void* data_ = nullptr;
  int (*free_)(void*) = nullptr;
};

class NcclPeer {
 public:
  // Environment error where `library` is not there or too old.
  static Result<NcclId> make_id(const std::string& library);
  // Collective; on the current CUDA device.
  static Result<std::unique_ptr<NcclPeer>> join(const std::string& library, const NcclId& id,
                                                int rank, int ranks);
  // On the current CUDA device.
  static Result<NcclMemory> allocate(const std::string& library, std::size_t bytes);
  ~NcclPeer();
  NcclPeer(const NcclPeer&) = delete;
  NcclPeer& operator=(const NcclPeer&) = delete;

  int version() const;
  // Misuse for collectives, types and operations that it lacks.
  Status run(const Call& call, void* stream) const;
  // The call's input to the next rank, its output from the one before.
  Status ring(const Call& call, void* stream) const;

 private:
  struct Library;
  NcclPeer(const Library& library, int rank, int ranks)
      : library_(library), rank_(rank), ranks_(ranks) {}
  static Result<const Library*> open(const std::string& path);
  Status check(int result, std::string_view what) const;
  Status exchange(const Call& call, int type, void* stream) const;

  const Library& library_;
  int rank_;
  int ranks_;
  void* communicator_ = nullptr;
};

}  // namespace unisono::python
