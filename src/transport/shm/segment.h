// The shared memory of one connection.
//
//   one page     Header: what each end says about itself
//   signals[0]   of the lower rank, stored to by the higher one; whole pages
//   signals[1]   of the higher rank
//   region[0], region[1]
//
// What lies before the regions has memory from the beginning; of the regions, what was reserved.
// What one end writes and the other polls is on lines, and pages, that nobody else writes.
#pragma once

#include <unisono/result.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/key.h"
#include "base/sha256.h"
#include "sys/process.h"
#include "sys/shared_memory.h"
#include "transport/transport.h"

namespace unisono::transport::shm {

enum class EndState : std::uint32_t { absent, claimed, joined, left };

// What an end says of itself.
struct EndFacts {
  static constexpr std::uint64_t current_magic = 0x6f6e6f73696e7534;  // "4unisono"

  std::uint64_t magic;
  Geometry geometry;
  sys::ProcessIdentity process;
  std::uint64_t probe_address;  // where in its own memory this end keeps probe_value
  std::uint64_t probe_value;
};

// Over every field, so that an end cannot be joined with another's facts.
Sha256Digest prove(const Key& key, int end, const EndFacts& facts);

struct EndRecord {
  // Written by its end between claimed and joined; read by the other after it saw joined (acquire).
  EndFacts facts;
  Sha256Digest proof;  // of the facts and the job's key

  // Stored with release. Polled by the other end in every progress(), hence a line of their own.
  alignas(64) std::atomic<EndState> state;
  std::atomic<std::uint64_t> fault;  // packed; 0 none
};

// Memory that an end exposes: it stores the size, then the key with release; 0 while there is none.
struct ExposedPiece {
  std::atomic<std::uint64_t> key;
  std::atomic<std::uint64_t> bytes;
};

struct Header {
  std::array<EndRecord, 2> ends;
  alignas(64) std::atomic<std::uint32_t> unlinked;     // whoever sets it first removes the name
  alignas(64) std::array<std::atomic<int>, 2> copies;  // see Segment::copies_of
  std::array<std::array<ExposedPiece, Connection::most_exposed>, 2> exposed;
};

// Both ends hold one; ends in one process hold the same one, so that what is ordered by an atomic
// in the segment is ordered for the language (and for a thread sanitizer) too.
class Segment {
 public:
  static Result<std::shared_ptr<Segment>> open(const std::string& name, const Geometry& geometry);
  Segment(std::string name, sys::SharedMemory memory, const Geometry& geometry);

  Header& header() const { return *reinterpret_cast<Header*>(memory_.data()); }
  std::atomic<std::uint64_t>* signals(int end) const;
  std::byte* region(int end) const;
  Status reserve(int end, std::size_t offset, std::size_t bytes) const;
  // Memory taken by what `end` receives, and half of what lies before the regions.
  std::size_t resident_bytes(int end) const;
  void unlink_once();

  std::array<ExposedPiece, Connection::most_exposed>& exposed_by(int end) const {
    return header().exposed[static_cast<std::size_t>(end)];
  }
  // Copies by the other end that are under way in memory that `end` has offered.
  std::atomic<int>& copies_of(int end) const {
    return header().copies[static_cast<std::size_t>(end)];
  }

 private:
  std::string name_;
  sys::SharedMemory memory_;
  std::size_t signals_bytes_;
  std::size_t region_bytes_;
};

// Names of segments begin so.
inline constexpr const char* segment_prefix = "unisono-";

// Anybody can list the names and make objects of any name: the rest of this one, 128 bits, follows
// from the job's key and so tells others nothing, and nobody else can take it before.
std::string segment_name(const Key& job_key, const ConnectionKey& key, int low_rank, int high_rank);

// The segment of that name, whose end of `request.self` is now this process's. Segments that a dead
// process of the same job and rank has left are unlinked.
Result<std::shared_ptr<Segment>> claim_segment(const std::string& name,
                                               const ConnectionRequest& request);
// Why there is no memory, with the connection's ranks.
Error no_memory(int self, int peer, Error why);

// Removes the segments of this user whose ends have all died before they met; where they met, the
// name is gone already.
void remove_stale_segments();

}  // namespace unisono::transport::shm
