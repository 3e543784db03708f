// One TCP stream of a connection: frames that wait to be sent on it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "sys/tcp_socket.h"
#include "transport/socket/frame.h"
#include "transport/socket/pending_connection.h"
#include "transport/socket/poller.h"
#include "transport/socket/ring.h"
#include "transport/socket/sealer.h"

namespace unisono::transport::socket {

// Is notified that a frame has left, with the token it was pushed with.
class SentFrames {
 public:
  virtual ~SentFrames() = default;
  virtual void frame_sent(std::uint64_t token) = 0;
};

class Stream {
 public:
  Stream(sys::Socket socket, Poller& poller);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Status watch();
  // From now on each send() tries, and the poller may go.
  void unwatch();
  // Before the first frame: what leaves is sealed, and what comes must be.
  Status seal(const JoinedStream& how);
  // For what comes; nullptr where it is not sealed.
  sys::Seal* opener() { return opener_ ? &*opener_ : nullptr; }

  // At most so many frames wait.
  static constexpr std::uint64_t max_waiting = 64;
  bool has_room() const { return waiting_.size() < max_waiting; }
  bool nothing_waits() const { return waiting_.empty(); }
  // What the kernel has not taken, heads included.
  std::size_t unsent_bytes() const { return unsent_bytes_; }
  // `payload` of frame.bytes must stay until the frame has left.
  void push(const Frame& frame, const std::byte* payload, std::uint64_t token);

  // Nothing is sent or received any more. What waits counts as sent.
  void close(SentFrames& listener);
  bool is_closed() const { return !socket_; }

  // Sends what waits, as far as the kernel takes it. A broken stream drops it: frames count as
  // sent.
  void send(SentFrames& listener);
  // Whether a payload's memory has gone: nothing is sent until it is dropped.
  bool is_unreadable() const { return is_unreadable_; }
  // From now on nothing is read from payloads. Frames with payload that have not begun to leave are
  // dropped, and so is what confirms them; the rest of one that has is sent as zeros, and sealed as
  // what is sent.
  void drop_payloads();

  const sys::Socket& socket() const { return socket_; }
  Readiness& readiness() { return readiness_; }
  std::size_t memory_bytes() const {
    return sizeof *this + waiting_.memory_bytes() + (sealer_ ? sealer_->memory_bytes() : 0);
  }
  bool broken() const { return broken_; }
  void set_broken() { broken_ = true; }

 private:
  static constexpr std::size_t max_parts = Sealer::max_parts;

  std::size_t gather(std::array<iovec, max_parts>& parts);
  std::size_t gather_plain(std::array<iovec, max_parts>& parts);
  void frame_has_left(SentFrames& listener);
  void advance(std::size_t bytes, SentFrames& listener);
  void drop_waiting(SentFrames& listener);

  sys::Socket socket_;
  Poller* poller_;
  Readiness readiness_;
  bool broken_ = false;
  bool is_unreadable_ = false;
  Ring<WaitingFrame> waiting_;
  std::size_t unsent_bytes_ = 0;
  std::size_t sent_of_front_ = 0;  // bytes of the first waiting frame that have left, unsealed
  std::unique_ptr<Sealer> sealer_;
  std::optional<sys::Seal> opener_;
};

}  // namespace unisono::transport::socket
