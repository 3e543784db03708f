// How bytes are stored into a slot that another core reads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unisono::transport {

enum class StoreWay : std::uint8_t { vectors, string, streaming };

// Nanoseconds that each way took for as many bytes.
struct StoreTimes {
  std::int64_t vectors = 0;
  std::int64_t string = 0;
  std::int64_t streaming = 0;

  // Each trial counts for three quarters of the one after it: single ones differ by a half.
  void add(const StoreTimes& trial);
  // What is streamed is read from memory; where ranks share what that moves, streaming must be more
  // than a little faster.
  StoreWay best(bool shares_memory_bandwidth) const;
};

// An ordinary store must first take the line away from the receiver's cache. Between cores that
// share a cache this is quick on some processors; on others a string instruction, which does not
// read the line first, is four times as fast. Between cores that share no cache both take ten times
// as long as the copy itself, and a streaming store, past the caches, is the better one, although
// the receiver then reads from memory. Which it is depends on where the two run, which may change;
// so all three are tried now and then, on a part of a message each.
class SlotStore {
 public:
  // See FifoOptions.
  explicit SlotStore(bool shares_memory_bandwidth)
      : shares_memory_bandwidth_(shares_memory_bandwidth) {}

  // Smaller messages are over before a streaming store has begun.
  static constexpr std::size_t least_bytes = std::size_t{4} << 10;

  // At least least_bytes.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (until_trial_ == 0) return copy_and_try(to, from, bytes);
    --until_trial_;
    store(to, from, bytes);
  }

 private:
  // A trial costs at most some 10 us, of two cores that are far apart; a message, of some 64 KiB,
  // that is well stored 4 us.
  static constexpr std::size_t most_trial_bytes = std::size_t{16} << 10;
  static constexpr std::uint32_t shortest_period = 8;
  static constexpr std::uint32_t longest_period = 256;

  void store(std::byte* to, const std::byte* from, std::size_t bytes) const;
  void copy_and_try(std::byte* to, const std::byte* from, std::size_t bytes);

  bool shares_memory_bandwidth_;
  StoreWay way_ = StoreWay::vectors;
  StoreTimes tried_;
  std::uint32_t until_trial_ = 16;  // messages; the first ones take fresh pages, which would count
  std::uint32_t period_ = shortest_period;
};

}  // namespace unisono::transport
