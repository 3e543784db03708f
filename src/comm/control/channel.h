// A connection after its handshake: frames, each authenticated or encrypted as the two ends agreed.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/key.h"
#include "comm/control/messages.h"
#include "sys/seal.h"
#include "sys/world.h"

namespace unisono::comm {

// How the control plane's frames are protected.
struct WireProtection {
  sys::Protection between_hosts = sys::Protection::authenticate;
  // Inside a host only its administrator could read or change frames, so they are left as they are.
  bool inside_host = false;

  sys::Protection on(const sys::Address& local, const sys::Address& peer) const;
};

// What the two ends of a connection share, by the handshake.
struct Session {
  Key send{};
  Key receive{};
  Key wrap{};  // hides one other key
  sys::Protection protection = sys::Protection::none;
};

struct Frame {
  FrameHeader header;
  std::vector<std::byte> payload;
};

// One reader and one writer at a time. After an error nothing more can be understood.
//
// Header and payload are sealed one after the other, so that a length is known to be right before
// it is used. A protected stream that is cut ends without a `bye`, which only this end's peer can
// say: an end alone is an error.
class Channel {
 public:
  static Result<std::unique_ptr<Channel>> make(std::unique_ptr<sys::Stream> stream,
                                               const Session& session);

  // Memory grows with what arrives: a length alone makes nobody allocate.
  sys::Task<Result<Frame>> read(std::size_t max_message_bytes, std::int64_t deadline_ns);
  sys::Task<Status> write(FrameKind kind, const MessageKey& key, std::span<const std::byte> payload,
                          std::int64_t deadline_ns);
  // Tells the peer that the end that follows is meant; if it can be told at once, and not while a
  // frame is being written.
  void say_bye();
  // Waits until the peer has closed its side, whatever comes before that.
  sys::Task<void> wait_for_end(std::int64_t deadline_ns);
  void close() { stream_->close(); }

  // Hides a key under one that only the two ends have, or finds it again. For one key.
  Key wrap(const Key& key) const;

  const sys::Address& local_address() const { return stream_->local_address(); }
  const sys::Address& peer_address() const { return stream_->peer_address(); }

 private:
  Channel(std::unique_ptr<sys::Stream> stream, const Key& wrap)
      : stream_(std::move(stream)), wrap_(wrap) {}
  Result<std::vector<std::byte>> seal(FrameKind kind, const MessageKey& key,
                                      std::span<const std::byte> payload);
  sys::Task<Status> read_sealed(std::vector<std::byte>& out, std::size_t bytes,
                                std::int64_t deadline_ns);

  std::unique_ptr<sys::Stream> stream_;
  Key wrap_;
  std::optional<sys::Seal> send_;  // neither: frames are not protected
  std::optional<sys::Seal> receive_;
};

}  // namespace unisono::comm
