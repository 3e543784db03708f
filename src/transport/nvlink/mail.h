// Small records between two ranks of a host, in order, off the way of calls: over a connection of
// its own, of which each end's region is a ring.
#pragma once

#include <unisono/result.h>

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>

#include "sys/cuda/share.h"
#include "sys/process.h"
#include "transport/transport.h"

namespace unisono::transport::nvlink {

// What ranks tell each other of their memory.
struct Record {
  enum class Kind : std::uint32_t {
    piece,   // `piece` of `pieces` of a region of the sender's
    answer,  // where the sender has mapped the receiver's region; 0: it cannot
    gone,    // the sender's region is no longer to be used
  };
  Kind kind = Kind::piece;
  std::uint32_t piece = 0;
  std::uint32_t pieces = 0;
  std::int32_t ordinal = 0;   // of the device, in the sender's process
  std::uint64_t region = 0;   // its owner's number for it, never used again
  std::uint64_t address = 0;  // of the piece in its owner's process; of an answer, in the sender's
  std::uint64_t bytes = 0;
  sys::ProcessIdentity process;
  sys::cuda::Uuid device;
  sys::cuda::Shareable shareable;
};
static_assert(std::is_trivially_copyable_v<Record>);

// Threads: one at a time.
class Mail {
 public:
  explicit Mail(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}
  static Geometry geometry();

  void send(const Record& record) { outbox_.push_back(record); }
  // Moves what can be moved. A failure is final: nothing is sent or taken any more.
  void progress();
  // A peer error that names it where it sent what it must not.
  const Status& failure() const { return failure_; }
  // Whether records have arrived that were not taken.
  bool has_arrived() const;
  // The next record that had arrived at the last progress(). Its contents are the peer's word.
  std::optional<Record> take();
  std::size_t memory_bytes() const { return connection_->memory_bytes(); }

 private:
  Status move();
  static constexpr std::uint64_t slots = 32;

  std::unique_ptr<Connection> connection_;
  Status failure_;
  bool is_ready_ = false;
  std::deque<Record> outbox_;
  // What is being put must stay as it is.
  std::array<Record, slots> sending_;
  std::uint64_t sent_ = 0;
  std::uint64_t arrived_ = 0;  // by the peer's word, at most `slots` more than are taken
  std::uint64_t taken_ = 0;
  std::uint64_t told_ = 0;  // of those taken
};

}  // namespace unisono::transport::nvlink
