// Where a connection that was asked for waits for its streams.
#pragma once

#include <unisono/result.h>

#include <atomic>
#include <string>
#include <vector>

#include "base/key.h"
#include "sys/seal.h"
#include "sys/tcp_socket.h"
#include "transport/transport.h"

namespace unisono::transport::socket {

// A stream of which both ends have proved the job's key.
struct JoinedStream {
  sys::Socket socket;
  sys::Protection protection = sys::Protection::none;
  Key send_key{};  // if frames are sealed
  Key receive_key{};
};

// A stream of a connection that has lost it and takes it back when its rail carries again.
struct ReturningStream {
  enum class State : std::uint8_t {
    none,
    wanted,  // with this generation
    joined,
    left,  // by a peer that asks for the same generation again: it did not hear that it had joined
  };
  State state = State::none;
  std::uint32_t generation = 0;
  JoinedStream stream;
};

// Shared by a connection and the hub. The lower rank connects, the higher one accepts. The hub
// alone writes, under its lock; the connection takes over when it sees `joined` or `failed`
// (acquire).
struct PendingConnection {
  enum class State : std::uint8_t { waiting, joined, failed };

  ConnectionKey key;
  int ranks = 0;
  int self = 0;
  int peer = 0;
  Geometry geometry;
  std::string peer_address;

  std::atomic<State> state{State::waiting};
  std::vector<JoinedStream> streams;  // all, once joined
  Error error;                        // once failed
  // Under the hub's lock; for each stream once one was lost.
  std::vector<ReturningStream> returning;
  std::atomic<bool> has_news{false};  // of these

  bool connects() const { return self < peer; }
  bool waits() const { return state.load(std::memory_order_relaxed) == State::waiting; }
  void join(std::vector<JoinedStream> all) {
    streams = std::move(all);
    state.store(State::joined, std::memory_order_release);
  }
  ReturningStream* returning_stream(int stream) {
    const auto at = static_cast<std::size_t>(stream);
    return at < returning.size() ? &returning[at] : nullptr;
  }
  void set(ReturningStream& one, ReturningStream::State to) {
    one.state = to;
    has_news.store(true, std::memory_order_relaxed);
  }
  void fail(Error why) {
    error = std::move(why);
    state.store(State::failed, std::memory_order_release);
  }
};

}  // namespace unisono::transport::socket
