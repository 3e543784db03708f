// The shared memory of one connection.
//
//   one page     Header: what each end says about itself
//   signals[0]   of the lower rank, stored to by the higher one; whole pages
//   region[0]    of the lower rank
//   signals[1], region[1]   of the higher rank
//
// What one end writes and the other polls is on lines, and pages, that nobody else writes.
#pragma once

#include <unisono/result.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/sha256.h"
#include "sys/process.h"
#include "sys/shared_memory.h"
#include "transport/transport.h"

namespace unisono::transport::shm {

enum class EndState : std::uint32_t { absent, claimed, joined, left };

struct EndRecord {
  static constexpr std::uint64_t current_magic = 0x6f6e6f73696e7531;  // "1unisono"

  // Written by its end between claimed and joined; read by the other after it saw joined (acquire).
  std::uint64_t magic;
  ConnectionKey key;
  Geometry geometry;
  std::int32_t self;
  sys::ProcessIdentity process;
  std::uint64_t probe_address;  // where in its own memory this end keeps probe_value
  std::uint64_t probe_value;
  Sha256Digest proof;  // of the job's secret

  // Stored with release. Polled by the other end in every progress(), hence a line of their own.
  alignas(64) std::atomic<EndState> state;
  std::atomic<std::uint64_t> fault;  // packed; 0 none
};

struct Header {
  std::array<EndRecord, 2> ends;
  alignas(64) std::atomic<std::uint32_t> unlinked;     // whoever sets it first removes the name
  alignas(64) std::array<std::atomic<int>, 2> copies;  // see Segment::copies_of
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
  // Memory taken by what `end` receives, and half of the header.
  std::size_t resident_bytes(int end) const;
  void unlink_once();

  // Copies by the other end that are under way in memory that `end` has offered.
  std::atomic<int>& copies_of(int end) const {
    return header().copies[static_cast<std::size_t>(end)];
  }

 private:
  std::string name_;
  sys::SharedMemory memory_;
  std::size_t signals_bytes_;
  std::size_t end_bytes_;  // signals and region
};

// Names of segments begin so.
inline constexpr const char* segment_prefix = "unisono-";

// Removes the segments of this user whose ends have all died before they met; where they met, the
// name is gone already.
void remove_stale_segments();

}  // namespace unisono::transport::shm
