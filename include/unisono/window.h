// Windows: memory of each rank that the other ranks write and read without its part in it; and
// signals, by which they tell each other that they have.
//
// Host memory of ranks on one host is written and read where it lies. Between hosts, a thread of
// the rank that owns the memory carries out what comes, also while the rank computes. Device memory
// is reached inside a host only.
//
// A signal is a counter for each pair of ranks and each number from 0 to signals_of_a_pair - 1.
// What a rank has put before it signals is there when the signal is seen; a wait takes the signals
// that it waited for, so that the next one waits for others.
#pragma once

#include <unisono/result.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace unisono {

inline constexpr int signals_of_a_pair = 64;
inline constexpr int no_signal = -1;

// A rank's view of a window that all ranks of a communicator have made together. Cheap to copy.
class Window {
 public:
  struct State;
  Window() = default;
  explicit Window(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  bool valid() const { return state_ != nullptr; }
  // This rank's memory, as it was given.
  void* data() const;
  std::size_t bytes() const;
  int rank() const;
  // How many bytes of a rank are in it. Misuse if there is no such rank.
  Result<std::size_t> bytes_of(int rank) const;
  // Where this process loads and stores byte `offset` of a rank's memory. Misuse if there is no
  // such rank or byte; an environment error, which names the rank, if this process does not reach
  // it.
  Result<void*> pointer(int rank, std::size_t offset) const;
  const State& state() const { return *state_; }

 private:
  std::shared_ptr<const State> state_;
};

// Changes a 64-bit word of a window at once, and gives its value before.
enum class WordOperation : std::uint8_t {
  add,               // operand more, modulo 2^64
  swap,              // the operand
  compare_and_swap,  // the operand, if the word was as expected
};

// `count` signals of a peer, with one number.
struct SignalWait {
  int peer = 0;
  int signal = 0;
  std::uint64_t count = 1;
};

struct SignalOptions {
  // See CallOptions: later work on the stream follows the put, signal or wait. Nothing: it
  // happens at once, in host memory. A call on a stream cannot be captured into a CUDA graph.
  std::optional<void*> stream = std::nullopt;
  std::chrono::nanoseconds timeout{0};  // of a wait; 0: the communicator's
};

// How long what is done at once, in host memory, may take.
struct AccessOptions {
  std::chrono::nanoseconds timeout{0};  // 0: the communicator's
};

}  // namespace unisono
