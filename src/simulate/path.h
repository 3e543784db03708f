// Why something happened when it did: the chain of what each moment waited for last.
//
// Every thread block carries, and every message takes along, how the time until now splits into
// shares. Where two chains meet, the later one is kept, so the shares at the end are those of the
// critical path, without a record of all events.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "simulate/time.h"

namespace unisono::simulate {

enum class Share : std::uint8_t {
  launch,        // of calls
  overhead,      // o: per message, on either side
  latency,       // L
  port,          // bytes, where the port is slower than the thread block
  thread_block,  // bytes, where the thread block is slower than the port
  reduction,
  copy,
  compute,  // of what a workload computes between its calls
  queue,    // waiting for a port or a core that others use
};
inline constexpr int share_count = 9;
std::string_view name(Share share);

inline constexpr std::uint32_t no_hop = UINT32_MAX;

// A message of the chain. Where it went and when; `before` is the one before it in the chain.
struct Hop {
  std::uint32_t before = no_hop;
  int from = 0, to = 0;  // ranks
  std::int64_t bytes = 0;
  Time sent = 0, arrived = 0;
};

struct Path {
  std::array<Time, share_count> shares{};
  std::int64_t messages = 0;
  std::int64_t messages_inter_node = 0;
  std::uint32_t last_hop = no_hop;

  Time total() const {
    Time sum = 0;
    for (const Time share : shares) sum += share;
    return sum;
  }
};

// Hops are kept up to this many; a longer run's path has its shares, and no list of messages.
inline constexpr std::size_t max_hops = std::size_t{1} << 22;

}  // namespace unisono::simulate
