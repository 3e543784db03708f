#include "transport/slot_store.h"

#include <algorithm>
#include <cstring>

#include "base/block_copy.h"
#include "base/fast_clock.h"
#include "base/stream_copy.h"

namespace unisono::transport {

namespace {

// What is streamed must be read from memory, which takes about as long as to stream it; and where
// many cores do so, they share the memory.
constexpr std::int64_t worthwhile_streaming = 4;
// In thirds: what is a little faster once is not faster.
constexpr std::int64_t worthwhile_string = 4;

// Less is stored as fast by the C library, with wider words.
constexpr std::size_t least_block_bytes = std::size_t{16} << 10;

std::int64_t ns_of(void (*copy)(void*, const void*, std::size_t), std::byte* to,
                   const std::byte* from, std::size_t bytes) {
  const std::int64_t begin = steady_now_ns();
  copy(to, from, bytes);
  return steady_now_ns() - begin;
}

}  // namespace

void SlotStore::store(std::byte* to, const std::byte* from, std::size_t bytes) const {
  if (way_ == Way::streaming)
    stream_copy(to, from, bytes);
  else if (way_ == Way::string)
    string_copy(to, from, bytes);
  else if (bytes < least_block_bytes)
    std::memcpy(to, from, bytes);
  else
    block_copy(to, from, bytes);
}

void SlotStore::copy_and_try(std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::size_t part = std::min(bytes / 3, most_trial_bytes) / 64 * 64;
  const std::int64_t vectors = ns_of(block_copy, to, from, part);
  const std::int64_t string = ns_of(string_copy, to + part, from + part, part);
  const std::int64_t streaming = ns_of(stream_copy, to + 2 * part, from + 2 * part, part);

  Way best = 3 * vectors > worthwhile_string * string ? Way::string : Way::vectors;
  if (std::min(vectors, string) > worthwhile_streaming * streaming) best = Way::streaming;
  period_ = best == way_ ? std::min(2 * period_, longest_period) : shortest_period;
  until_trial_ = period_;
  way_ = best;
  store(to + 3 * part, from + 3 * part, bytes - 3 * part);
}

}  // namespace unisono::transport
