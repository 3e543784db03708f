// A peer of a transport that speaks byte by byte: what strangers and broken ranks send.
#pragma once

#include <gtest/gtest.h>
#include <sys/uio.h>

#include <memory>
#include <span>
#include <vector>

#include "conformance/harness.h"
#include "sys/real_socket.h"
#include "sys/tcp_socket.h"
#include "transport/socket/frame.h"
#include "transport/socket/handshake.h"
#include "transport/socket/transport.h"

namespace unisono::test {

class RawPeer {
 public:
  explicit RawPeer(Transport& to) : to_(to) {
    auto address = sys::Address::parse(to.address());
    EXPECT_TRUE(address.ok());
    auto descriptor = sys::begin_connect(*address);
    EXPECT_TRUE(descriptor.ok());
    socket_ = sys::Socket(*descriptor);
    EXPECT_TRUE(eventually([&] {
      auto connected = sys::is_connected(socket_);
      return connected.ok() && *connected;
    }));
  }

  void send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const iovec part{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
      const sys::Transferred sent = sys::send_some(socket_, {&part, 1});
      if (sent.error != 0) return;
      bytes = bytes.subspan(sent.bytes);
      EXPECT_TRUE(to_.progress().ok());
    }
  }
  // Exactly so many bytes; fewer when the other side closes.
  std::vector<std::byte> receive(std::size_t bytes) {
    std::vector<std::byte> out(bytes);
    std::size_t have = 0;
    EXPECT_TRUE(eventually([&] {
      EXPECT_TRUE(to_.progress().ok());
      const iovec part{.iov_base = out.data() + have, .iov_len = bytes - have};
      const sys::Transferred got = sys::receive_some(socket_, {&part, 1});
      have += got.bytes;
      closed_ = got.ended || got.error != 0;
      return closed_ || have == bytes;
    }));
    out.resize(have);
    return out;
  }
  bool is_closed() {
    if (!closed_) (void)receive(1);
    return closed_;
  }
  // Whether it has been closed behind what it sent, without waiting.
  bool is_closed_now() {
    if (!closed_) closed_ = sys::discard_received(socket_);
    return closed_;
  }

  // What the other side drew.
  transport::socket::Nonces greet(const transport::socket::HandshakeKeys& keys) {
    using namespace transport::socket;
    Nonces nonces{.connector = *fresh_nonce()};
    send(encode_greeting(nonces.connector));
    auto drawn = decode_challenge(keys, nonces.connector, receive(challenge_bytes));
    EXPECT_TRUE(drawn.ok()) << drawn.error().describe();
    nonces.acceptor = *drawn;
    return nonces;
  }
  // Joins as the connecting end of a stream.
  transport::socket::Nonces join(const transport::socket::HandshakeKeys& keys,
                                 const transport::socket::Hello& hello) {
    using namespace transport::socket;
    const Nonces nonces = greet(keys);
    send(encode_hello(keys, nonces, hello));
    auto reply = decode_reply(keys, nonces, hello, receive(reply_bytes));
    EXPECT_TRUE(reply.ok()) << reply.error().describe();
    if (reply.ok()) {
      EXPECT_EQ(reply->verdict, Reply::Verdict::join);
    }
    return nonces;
  }
  void close() { socket_.close(); }
  void frame(const transport::socket::Frame& frame) { send(encode(frame)); }
  const sys::Socket& socket() const { return socket_; }

 private:
  Transport& to_;
  sys::Socket socket_;
  bool closed_ = false;
};

inline transport::socket::Hello hello_of_rank_0(const Geometry& geometry) {
  transport::socket::Hello hello;
  hello.self = 0;
  hello.peer = 1;
  hello.geometry = geometry;
  return hello;
}

}  // namespace unisono::test
