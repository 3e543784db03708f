// What every kernel is given: sizes, the arithmetic of a call, and where to tell of a failure.
//
// The host (src/engine/gpu) writes it and kernels read it, here and in the headers that include
// this one; there are no pointers of either side's own. Sequence numbers live in device memory
// (LinkCounters, BlockState), so that a launch which a CUDA graph replays goes on where the last
// one stopped.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/long_wait.h"

namespace unisono::device {

inline constexpr int threads_per_block = 512;
inline constexpr std::size_t unit_bytes = 16;  // what one thread moves at once
// LL: 4 bytes of data and 4 of flag in each word; a 16-byte store carries two words.
inline constexpr std::size_t ll_unit_payload = 8;
// LL128: 120 bytes of data and 8 of flag in each line.
inline constexpr std::size_t ll128_line_bytes = 128;
inline constexpr std::size_t ll128_line_payload = 120;
inline constexpr std::size_t ll128_group_payload = 8 * ll128_line_payload;
inline constexpr std::size_t ll128_group_bytes = 8 * ll128_line_bytes;

// A kernel waits for this: a message's number, and above it the tag of its call
// (unisono::call_tag), so that nobody takes a message of another call. One end's numbers rise by
// one; a flag that is read later has a number that is higher by less than `most_ahead`.
constexpr std::uint64_t flag_of(std::uint32_t tag, std::uint64_t number) {
  return (std::uint64_t{tag} << 32) + number;
}
inline constexpr std::uint64_t most_ahead = std::uint64_t{1} << 31;
constexpr std::uint32_t number_of(std::uint64_t flag) { return static_cast<std::uint32_t>(flag); }
// LL has 32 bits for each half of a unit: the number, and the sum of number and tag.

// The arithmetic of a call: unisono::DataType, and what combines two elements.
// average: a sum in which contributions that are finite never add up to an infinity.
enum class Combine : std::uint8_t { sum, product, min, max, average };
struct Arithmetic {
  std::uint8_t type;
  std::uint8_t combine;
  std::uint8_t scales_input;  // what is read from the input is multiplied by the factor
  std::uint8_t element_bytes;
  std::int32_t halvings;  // the factor is 2 to the minus this, on all ranks; 0: any factor
  std::int64_t integer_factor;
  double real_factor;
};

// A thread block's state, on cache lines of its own because the others poll it.
struct alignas(128) BlockState {
  std::uint64_t launches;  // of this program that are complete
  std::uint64_t progress;  // (launch + 1) << 32 | steps complete, counted over tiles
};

// What a wait that was given up waited for; in host memory. `state` is stored last.
struct Failure {
  enum Kind : std::uint32_t { none, message, credit, dependency, destination };
  enum Reason : std::uint32_t { timed_out = 1, aborted = 2 };
  std::uint32_t state;  // 0: nothing; else a Reason
  std::uint32_t kind;
  std::int32_t rank;
  std::int32_t peer;
  std::int32_t channel;
  std::int32_t block;
  std::int32_t step;
  std::int32_t tile;
  std::uint64_t expected;
  std::uint64_t got;
};

inline constexpr std::uint64_t most_fallbacks = 512;

// Host memory that kernels and the host share, one for each communicator.
struct Mailbox {
  alignas(128) std::uint32_t stop;   // host to kernels: give up
  alignas(128) std::uint32_t taken;  // the first wait that is given up takes the record below
  Failure failure;
  alignas(128) LongWait waits[most_long_waits];  // by thread block
  // Keys of the latest launches that ran in LL128 because a peer could not take the chosen path, at
  // the key modulo their number; 0: none. Relaxed: the launch has ended when the host looks for it.
  alignas(128) std::uint64_t fallbacks[most_fallbacks];
};

}  // namespace unisono::device
