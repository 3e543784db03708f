// The frames of one stream as they leave it sealed, some at a time.
#pragma once

#include <unisono/result.h>

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "sys/seal.h"
#include "transport/socket/frame.h"
#include "transport/socket/ring.h"

namespace unisono::transport::socket {

// A frame that waits on a stream.
struct WaitingFrame {
  FrameBytes head;
  const std::byte* payload;  // nullptr: zeros
  std::size_t payload_bytes;
  std::uint64_t token;
  std::size_t bytes() const { return frame_bytes + payload_bytes; }
};

// What is sent in place of bytes that are gone.
inline constexpr std::size_t zeros_bytes = std::size_t{64} << 10;
extern const std::array<std::byte, zeros_bytes> zeros;

// Head and payload have a tag each: the receiver must trust a head before it lets the payload's
// bytes go where the head says. Payloads that are authenticated leave from where they lie; those
// that are encrypted are written to a buffer here, piece by piece, never in place.
class Sealer {
 public:
  static constexpr std::size_t tag_bytes = sys::Seal::tag_bytes;
  static constexpr std::size_t sealed_head_bytes = frame_bytes + tag_bytes;
  // So much is sealed ahead of what has left: enough for a system call to be small beside it, and
  // little enough to stay in a core's cache until it is sent.
  static constexpr std::size_t window_bytes = std::size_t{64} << 10;
  static constexpr std::size_t max_parts = 32;

  Sealer(sys::Seal seal, sys::Protection protection)
      : seal_(std::move(seal)), encrypts_(protection == sys::Protection::encrypt) {}

  // What has been sealed and has not left; seals more of the frames when there is none.
  Status gather(Ring<WaitingFrame>& frames, std::span<iovec, max_parts> parts, std::size_t& count);
  // So many bytes have left. Returns how many frames are gone with them.
  int advance(std::size_t bytes);
  // From now on no payload is read any more: what was sealed of payloads is kept, and the rest of
  // one that has been begun is zeros. Frames from the number that is returned on have not begun.
  std::uint64_t drop_payloads(Ring<WaitingFrame>& frames);
  // The stream has ended: nothing that was sealed leaves any more, and no payload is read.
  void forget() { part_count_ = parts_left_ = 0; }

  std::size_t memory_bytes() const {
    return sizeof *this + (staging_ ? window_bytes : 0) + kept_bytes_;
  }

 private:
  struct Part {
    const std::byte* data;
    std::size_t bytes;
    bool is_payload;  // in the sender's memory
    bool ends_frame;
  };

  Status seal_more(Ring<WaitingFrame>& frames);
  Status seal_head(const WaitingFrame& frame);
  Status seal_payload(const WaitingFrame& frame, std::size_t& room);
  void add_part(const std::byte* data, std::size_t bytes, bool is_payload, bool ends_frame) {
    parts_[part_count_++] = {data, bytes, is_payload, ends_frame};
  }
  std::byte* store(std::span<const std::byte> bytes);

  sys::Seal seal_;
  bool encrypts_;
  std::uint64_t next_ = 0;       // number of the frame that is sealed next, or further
  bool head_is_sealed_ = false;  // of that frame
  std::size_t payload_sealed_ = 0;

  // The window: parts in the order in which they leave.
  std::array<Part, max_parts> parts_;
  std::size_t part_count_ = 0;
  std::size_t parts_left_ = 0;                                  // the first ones have left
  std::array<std::byte, max_parts * sealed_head_bytes> small_;  // heads and tags
  std::size_t small_bytes_ = 0;
  std::unique_ptr<std::byte[]> staging_;  // encrypted payloads; made when there is one
  std::unique_ptr<std::byte[]> kept_;     // payloads that were sealed, and then dropped
  std::size_t kept_bytes_ = 0;
};

}  // namespace unisono::transport::socket
