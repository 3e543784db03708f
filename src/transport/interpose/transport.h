// A transport between a user and another transport, which makes that one slow, unordered, lossy or
// short-lived: what tests need and a laptop does not have. The same seed makes the same trouble.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <memory>

#include "transport/transport.h"

namespace unisono::transport::interpose {

struct Options {
  std::uint64_t seed = 0;
  // Each put waits so long on its way; evenly distributed.
  std::int64_t min_delay_ns = 0;
  std::int64_t max_delay_ns = 0;
  // For each connection and direction; 0: no limit.
  std::uint64_t bytes_per_second = 0;
  // Lets the bytes of puts overtake each other, as far as signals allow it.
  bool reorder = false;
  // The share of puts whose bytes are lost, 0 to 1. A reliable layer would send them again after
  // `retransmit_ns`; a fatal loss breaks the connection instead.
  double loss = 0;
  bool loss_is_fatal = false;
  std::int64_t retransmit_ns = 200'000;
  // Puts reach regions only, as over wires that serve no other memory.
  bool regions_only = false;
  // With the n-th put of the transport, over all its connections, the rank dies; 0: never.
  std::uint64_t die_at_put = 0;
};

// Maps nothing and reads no peer's memory, so that every message is a put. Both ends must be
// wrapped.
std::unique_ptr<Transport> make_transport(std::unique_ptr<Transport> inner, const Options& options);

}  // namespace unisono::transport::interpose
