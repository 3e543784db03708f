// How a stream joins a connection, before anything else is said on it. Three messages of fixed
// size:
//
//   acceptor   Challenge  a magic number and a nonce
//   connector  Hello      which stream of which connection it is, and proof of the job's secret
//   acceptor   Reply      whether it may join, when the local rank has connected too; and proof
//
// A proof is an HMAC-SHA256 over the message and both nonces, so that neither a recorded Hello nor
// a recorded Reply proves anything again. Proofs are verified before any field is looked at.
#pragma once

#include <unisono/result.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "transport/transport.h"

namespace unisono::transport::socket {

using Nonce = std::array<std::byte, 16>;

// From the kernel's generator.
Result<Nonce> fresh_nonce();

inline constexpr int max_streams = 16;
inline constexpr std::size_t proof_bytes = 32;
inline constexpr std::size_t challenge_bytes = 8 + 16;
inline constexpr std::size_t hello_bytes = 8 + 16 + 2 + 2 + 16 + 4 + 4 + 20 + proof_bytes;
inline constexpr std::size_t reply_bytes = 4 + 20 + proof_bytes;
inline constexpr std::size_t max_handshake_bytes = hello_bytes;

struct Hello {
  Nonce nonce{};  // the same for all streams of one attempt to connect, and no other
  int stream = 0;
  int streams = 1;
  ConnectionKey key;
  int self = 0;
  int peer = 0;
  Geometry geometry;
};

struct Reply {
  enum class Verdict : std::uint32_t { join = 1, other_geometry };
  Verdict verdict = Verdict::join;
  Geometry geometry;  // the acceptor's
};

std::vector<std::byte> encode_challenge(const Nonce& nonce);
std::vector<std::byte> encode_hello(const Hello& hello, std::string_view secret,
                                    const Nonce& challenge);
std::vector<std::byte> encode_reply(const Reply& reply, std::string_view secret,
                                    const Nonce& challenge, const Hello& hello);

// Of exactly the sizes above; errors say what is wrong, not from whom it came.
Result<Nonce> decode_challenge(std::span<const std::byte> bytes);
Result<Hello> decode_hello(std::span<const std::byte> bytes, std::string_view secret,
                           const Nonce& challenge);
Result<Reply> decode_reply(std::span<const std::byte> bytes, std::string_view secret,
                           const Nonce& challenge, const Hello& hello);

}  // namespace unisono::transport::socket
