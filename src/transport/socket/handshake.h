// How a stream joins a connection, before anything else is said on it. Four messages of fixed size:
//
//   connector  Greeting   a magic number and a nonce
//   acceptor   Challenge  a nonce, and proof of the job's key
//   connector  Hello      which stream of which connection it is, and proof
//   acceptor   Reply      whether it may join, when the local rank has connected too; and proof
//
// A proof is an HMAC-SHA256 of the message and both nonces, by a key of its own that derives from
// the job's, so that a recorded message proves nothing again, and none proves what another says.
// Proofs are verified before any field is looked at, and neither side says anything of itself to
// one that has not proved the key. If frames are sealed, the keys for it derive from the nonces and
// the Hello.
#pragma once

#include <unisono/result.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/key.h"
#include "sys/seal.h"
#include "transport/transport.h"

namespace unisono::transport::socket {

using Nonce = std::array<std::byte, 16>;

// From the kernel's generator.
Result<Nonce> fresh_nonce();

// What each side drew.
struct Nonces {
  Nonce connector{};  // the same for all streams of one attempt to connect, and no other
  Nonce acceptor{};
};

// One key for each message that proves something, and one from which streams' keys derive.
class HandshakeKeys {
 public:
  explicit HandshakeKeys(const Key& job_key);
  ~HandshakeKeys();
  HandshakeKeys(const HandshakeKeys&) = delete;
  HandshakeKeys& operator=(const HandshakeKeys&) = delete;

  const Key& challenge() const { return challenge_; }
  const Key& hello() const { return hello_; }
  const Key& reply() const { return reply_; }
  const Key& streams() const { return streams_; }

 private:
  Key challenge_, hello_, reply_, streams_;
};

inline constexpr int max_streams = 16;
inline constexpr std::size_t proof_bytes = 32;
inline constexpr std::size_t geometry_bytes = 8 + 4 + 8;
inline constexpr std::size_t greeting_bytes = 8 + sizeof(Nonce);
inline constexpr std::size_t challenge_bytes = sizeof(Nonce) + proof_bytes;
inline constexpr std::size_t hello_bytes =
    2 + 2 + 4 + 16 + 4 + 4 + geometry_bytes + 1 + proof_bytes;
inline constexpr std::size_t reply_bytes = 1 + geometry_bytes + 1 + proof_bytes;
inline constexpr std::size_t max_handshake_bytes = hello_bytes;

// The ranks are the peer's word: they serve to find the connection that was asked for here.
struct Hello {
  int stream = 0;
  int streams = 1;
  // How often this stream of a connection was lost before; 0: the connection is made.
  std::uint32_t generation = 0;
  ConnectionKey key;
  std::uint32_t self = 0;
  std::uint32_t peer = 0;
  Geometry geometry;
  sys::Protection protection = sys::Protection::none;
};

struct Reply {
  enum class Verdict : std::uint8_t { join = 1, other_geometry, other_protection, past_epoch };
  Verdict verdict = Verdict::join;
  Geometry geometry;  // the acceptor's, and so is the protection
  sys::Protection protection = sys::Protection::none;
};

// What the connector and what the acceptor seals with.
struct StreamKeys {
  Key connector;
  Key acceptor;
};

std::array<std::byte, greeting_bytes> encode_greeting(const Nonce& connector);
std::array<std::byte, challenge_bytes> encode_challenge(const HandshakeKeys& keys,
                                                        const Nonces& nonces);
std::vector<std::byte> encode_hello(const HandshakeKeys& keys, const Nonces& nonces,
                                    const Hello& hello);
std::vector<std::byte> encode_reply(const HandshakeKeys& keys, const Nonces& nonces,
                                    const Hello& hello, const Reply& reply);

// They have exactly the sizes above; errors say what is wrong, not from whom it came. The nonces
// are the connector's and the acceptor's.
Result<Nonce> decode_greeting(std::span<const std::byte> bytes);
Result<Nonce> decode_challenge(const HandshakeKeys& keys, const Nonce& connector,
                               std::span<const std::byte> bytes);
Result<Hello> decode_hello(const HandshakeKeys& keys, const Nonces& nonces,
                           std::span<const std::byte> bytes);
Result<Reply> decode_reply(const HandshakeKeys& keys, const Nonces& nonces, const Hello& hello,
                           std::span<const std::byte> bytes);

StreamKeys derive_stream_keys(const HandshakeKeys& keys, const Nonces& nonces, const Hello& hello);

}  // namespace unisono::transport::socket
