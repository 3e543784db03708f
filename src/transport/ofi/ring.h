// The words by which a peer tells of its writes where none bring completion data. They lie behind
// an end's region, as many as the peer may have under way, and each is written behind the write
// that it tells of. So the first one that has not been read is the only one to look at.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "transport/ofi/inbox.h"

namespace unisono::transport::ofi {

class Ring {
 public:
  static constexpr std::size_t bytes = Inbox::window * sizeof(std::uint64_t);
  // Where it begins.
  static constexpr std::size_t offset(std::size_t region_bytes) {
    constexpr std::size_t alignment = 64;
    return (region_bytes + alignment - 1) / alignment * alignment;
  }
  // Of the word that tells of write or value `sequence`.
  static constexpr std::size_t offset(std::size_t region_bytes, std::uint64_t sequence) {
    return offset(region_bytes) + sequence % Inbox::window * sizeof(std::uint64_t);
  }
  // The count is in the half that is stored last where a word comes in parts, and is at no time
  // that of a word which was there before.
  static constexpr std::uint64_t word(std::uint64_t sequence, std::uint32_t immediate) {
    return (sequence + 1) << 32 | immediate;
  }
  // The immediate of write `sequence`, if it has arrived in this region.
  static std::optional<std::uint32_t> look(std::byte* region, std::size_t region_bytes,
                                           std::uint64_t sequence) {
    auto& place = *reinterpret_cast<std::uint64_t*>(region + Ring::offset(region_bytes, sequence));
    // Acquire: who sees the word sees the bytes that were written before it.
    const std::uint64_t there = std::atomic_ref(place).load(std::memory_order_acquire);
    if (there >> 32 != ((sequence + 1) & 0xffffffffU)) return std::nullopt;
    return static_cast<std::uint32_t>(there);
  }
};

}  // namespace unisono::transport::ofi
