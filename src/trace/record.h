// The record: what every call of a communicator did, and what a running one waits for.
//
// One format, written where it happens; the timeout's message, the dump and whatever
// else tells of a communicator's past reads it. A ring of fixed-size entries: the newest ones are
// kept.
#pragma once

#include <unisono/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::trace {

// What the least advanced blocked thread block of a call waits for.
struct Waiting {
  enum class Kind : std::uint8_t {
    nothing,
    connection,   // the peer to join the connection
    message,      // the peer's message number `expected`; `got` have arrived
    credit,       // a free slot: `expected` messages were to be sent, the peer has given back `got`
    destination,  // where messages go, which the peer has told `got` times
    dependency,   // `expected` steps of another thread block, which has done `got`
    consumption,  // the peer to read message `expected` - 1 from this rank's memory
    entry,        // the peer to begin the call, so that its memory can be written and read
    departure,    // the peer to be done with this rank's memory
  };
  Kind kind = Kind::nothing;
  std::int32_t peer = -1;
  std::int32_t channel = -1;
  std::int32_t thread_block = -1;
  std::int64_t step = -1;  // unrolled number within the tile
  std::int64_t tile = -1;
  std::uint64_t expected = 0;
  std::uint64_t got = 0;

  // For another rank, not for a thread block of its own.
  bool waits_outside() const { return kind != Kind::nothing && kind != Kind::dependency; }
  bool operator==(const Waiting&) const = default;
};
std::string_view name(Waiting::Kind kind);
// "message 5 of rank 3 on channel 0 (4 have arrived), at step 2 of thread block 0, tile 0".
std::string describe(const Waiting& waiting);

// A call on a stream is launched when its kernels are in the stream: nothing here tells what became
// of them.
enum class State : std::uint8_t { enqueued, started, completed, failed, launched };
std::string_view name(State state);

// What carries a call: the host engine, a GPU kernel, or the copy engines.
enum class Path : std::uint8_t {
  host,
  interpreter,      // the kernel that interprets any plan
  ll_all_pairs,     // a specialised kernel in protocol LL
  ll128_all_pairs,  // a specialised kernel in protocol LL128
  zero_copy,        // kernels store straight into peers' mapped buffers
  tma_bulk,         // TMA bulk copies between mapped buffers
  messages,         // the kernels of point-to-point groups
  copy_engine,
};
std::string_view name(Path path);

struct Entry {
  // First what each call has anew; then what calls of one kind share.
  std::uint64_t sequence = 0;
  std::int64_t enqueued_ns = 0;  // of the steady clock, like the others; 0: not yet
  std::int64_t started_ns = 0;
  std::int64_t ended_ns = 0;  // or launched
  Collective collective = Collective::all_reduce;
  Protocol protocol = Protocol::simple;
  DataType type = DataType::uint8;
  ReduceOperation operation = ReduceOperation::sum;
  State state = State::enqueued;
  Path path = Path::host;
  std::int32_t root = 0;
  std::array<char, 44> plan{};  // the plan's name, cut to fit, ending in 0
  std::uint64_t bytes = 0;
  std::uint64_t tag = 0;  // the caller's
  Waiting waiting;

  void set_plan(std::string_view name);
};

// Written by one thread at a time (whoever drives the communicator), read by any.
class Ring {
 public:
  explicit Ring(std::size_t slots);

  // Writes the entry to the slot of its sequence number. Neither blocks nor allocates. Entries of
  // one kind, if it is not 0, differ in their number and times alone: where a slot holds one of
  // that kind, only its first line is written. Many small calls would else go through all of a ring
  // that is larger than a core's first cache.
  void write(const Entry& entry, std::uint32_t kind = 0);
  // The entries held now, oldest first. Entries that are being overwritten are left out.
  std::vector<Entry> read() const;
  std::size_t memory_bytes() const;

 private:
  static constexpr std::size_t words = (sizeof(Entry) + 7) / 8;
  static constexpr std::size_t words_of_one_call = offsetof(Entry, collective) / 8;
  // A sequence lock: `version` is odd while a write is under way and changes with each.
  struct alignas(64) Slot {
    std::atomic<std::uint32_t> version{0};
    std::uint32_t kind = 0;  // the writer's
    std::array<std::atomic<std::uint64_t>, words> data{};
  };
  bool read_slot(const Slot& slot, Entry& entry) const;

  std::size_t slots_;
  std::unique_ptr<Slot[]> ring_;
};

// Who the record belongs to: the head of a dump.
struct Owner {
  std::uint64_t communicator = 0;
  std::uint32_t epoch = 0;
  int rank = 0;
  int ranks = 1;
  std::string node;
};

// {"format": "unisono-record", "version": 1, "rank": 0, ..., "entries": [...]}.
std::string to_json(const Owner& owner, const std::vector<Entry>& entries);

}  // namespace unisono::trace
