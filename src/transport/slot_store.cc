#include "transport/slot_store.h"

#include <algorithm>
#include <cstring>

#include "base/block_copy.h"
#include "base/fast_clock.h"
#include "base/stream_copy.h"

namespace unisono::transport {

// What is streamed must be read from memory, which takes about as long as to stream it; and where
// many cores do so, they share the memory.
constexpr std::int64_t worthwhile = 4;

// Less is stored as fast by the C library, with wider words.
constexpr std::size_t least_block_bytes = std::size_t{16} << 10;

void SlotStore::store(std::byte* to, const std::byte* from, std::size_t bytes) const {
  if (streams_)
    stream_copy(to, from, bytes);
  else if (bytes < least_block_bytes)
    std::memcpy(to, from, bytes);
  else
    block_copy(to, from, bytes);
}

void SlotStore::copy_and_try(std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::size_t part = std::min(bytes / 2, most_trial_bytes) / 64 * 64;
  const std::int64_t begin = steady_now_ns();
  block_copy(to, from, part);
  const std::int64_t stored = steady_now_ns();
  stream_copy(to + part, from + part, part);
  const std::int64_t streamed = steady_now_ns();

  const bool streams = stored - begin > worthwhile * (streamed - stored);
  period_ = streams == streams_ ? std::min(2 * period_, longest_period) : shortest_period;
  until_trial_ = period_;
  streams_ = streams;
  store(to + 2 * part, from + 2 * part, bytes - 2 * part);
}

}  // namespace unisono::transport
