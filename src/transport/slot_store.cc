#include "transport/slot_store.h"

#include <algorithm>
#include <cstring>

#include "base/block_copy.h"
#include "base/fast_clock.h"
#include "base/stream_copy.h"

namespace unisono::transport {

namespace {

// In thirds: what is a little faster is not faster. What is streamed is read from memory in as long
// as it took to stream it, and what another core stored out of that core's cache in as long as it
// took to store it; so the stores alone tell which is faster in all.
constexpr std::int64_t worthwhile = 4;
constexpr std::int64_t worthwhile_where_memory_is_shared = 12;

// Less is stored as fast by the C library, with wider words.
constexpr std::size_t least_block_bytes = std::size_t{16} << 10;

std::int64_t ns_of(void (*copy)(void*, const void*, std::size_t), std::byte* to,
                   const std::byte* from, std::size_t bytes) {
  const std::int64_t begin = steady_now_ns();
  copy(to, from, bytes);
  return steady_now_ns() - begin;
}

}  // namespace

void StoreTimes::add(const StoreTimes& trial) {
  vectors += trial.vectors - vectors / 4;
  string += trial.string - string / 4;
  streaming += trial.streaming - streaming / 4;
}

StoreWay StoreTimes::best(bool shares_memory_bandwidth) const {
  const std::int64_t needed =
      shares_memory_bandwidth ? worthwhile_where_memory_is_shared : worthwhile;
  if (3 * std::min(vectors, string) > needed * streaming) return StoreWay::streaming;
  return 3 * vectors > worthwhile * string ? StoreWay::string : StoreWay::vectors;
}

void SlotStore::store(std::byte* to, const std::byte* from, std::size_t bytes) const {
  if (way_ == StoreWay::streaming)
    stream_copy(to, from, bytes);
  else if (way_ == StoreWay::string)
    string_copy(to, from, bytes);
  else if (bytes < least_block_bytes)
    std::memcpy(to, from, bytes);
  else
    block_copy(to, from, bytes);
}

void SlotStore::copy_and_try(std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::size_t part = std::min(bytes / 3, most_trial_bytes) / 64 * 64;
  const StoreTimes trial{.vectors = ns_of(block_copy, to, from, part),
                         .string = ns_of(string_copy, to + part, from + part, part),
                         .streaming = ns_of(stream_copy, to + 2 * part, from + 2 * part, part)};
  tried_.add(trial);
  const StoreWay best = tried_.best(shares_memory_bandwidth_);
  // A trial that says otherwise may be the first after the two were moved.
  const bool is_certain = best == way_ && trial.best(shares_memory_bandwidth_) == way_;
  period_ = is_certain ? std::min(2 * period_, longest_period) : shortest_period;
  until_trial_ = period_;
  way_ = best;
  store(to + 3 * part, from + 3 * part, bytes - 3 * part);
}

}  // namespace unisono::transport
