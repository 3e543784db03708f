// Proof of the job's secret, both ways, before anything else is read from a connection.
//
//   server → client   magic, version, server's nonce (32 random bytes)
//   client → server   magic, version, client's nonce, HMAC(secret, "client" nonces)
//   server → client   verdict (1 byte), HMAC(secret, "server" nonces)
//
// Each message has a fixed length, so no length is ever read from a stranger. The fresh nonces of
// both sides make a recorded conversation useless, the two labels make a reflected one useless.
// What follows on the connection is neither encrypted nor authenticated piece by piece: the
// network between the ranks is trusted not to rewrite TCP streams, as it is for the data.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "sys/world.h"

namespace unisono::comm {

inline constexpr std::size_t challenge_bytes = 8 + 32;
inline constexpr std::size_t answer_bytes = 8 + 32 + 32;
inline constexpr std::size_t verdict_bytes = 1 + 32;

// `secret_refused` is set when the other side lacks our secret, the one failure that trying again
// cannot mend.
sys::Task<Status> prove_to_server(sys::World& world, sys::Stream& stream, std::string_view secret,
                                  std::int64_t deadline_ns, bool& secret_refused);
sys::Task<Status> prove_to_client(sys::World& world, sys::Stream& stream, std::string_view secret,
                                  std::int64_t deadline_ns);

}  // namespace unisono::comm
