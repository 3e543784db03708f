// The record: what every call of a communicator did, and what a running one waits for.
//
// One format, written where it happens. The timeout's message, the dump and every other report of a
// communicator's past read it. A ring of fixed-size entries: the newest ones are
// kept.
#pragma once

#include <unisono/result.h>
#include <unisono/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
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
  bool is_of_another_call = false;  // what has come in its place; kernels see that
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

// How far a call was seen to come. A call of this library on a stream is scheduled until the host
// sees its end, unless kernels stamp when they begin and end (UNISONO_GPU_STAMPS).
enum class State : std::uint8_t { scheduled, started, ended, failed, aborted };
std::string_view name(State state);

// What carries a call: the host engine, a GPU kernel, the copy engines, or the host engine between
// copies from and to the device, with or without kernels before and after.
enum class Path : std::uint8_t {
  host,
  interpreter,      // the kernel that interprets any plan
  ll_all_pairs,     // a specialised kernel in protocol LL
  ll128_all_pairs,  // a specialised kernel in protocol LL128
  zero_copy,        // kernels store directly into peers' mapped buffers
  tma_bulk,         // TMA bulk copies between mapped buffers
  messages,         // the kernels of point-to-point groups
  copy_engine,
  staged,
  nccl,   // NCCL's kernels: the record is its profiler plugin's
  mixed,  // kernels inside nodes, and the host engine between them, on data that are staged
};
std::string_view name(Path path);

// What carries a call, and how: what its choice has beside the plan.
struct ChosenPath {
  Path variant = Path::host;
  std::int32_t thread_blocks = 0;  // the grid; 0: no kernel, or known at the launch alone
  // What is on its way to a peer, or to a warp of a bulk copy, at once; 0: nothing waits there.
  std::int32_t slots = 0;
  std::uint32_t chunk_bytes = 0;  // of data, that a slot holds at most; slots have up to 1 GiB
  bool operator==(const ChosenPath&) const = default;
};

// Why a call ran by another path than the one that was chosen for it.
enum class Fallback : std::uint8_t {
  none,
  overlap,      // in place, direct stores would overwrite what is not yet read
  not_mapped,   // a rank has not mapped a buffer of this one
  not_aligned,  // what is moved does not begin at a multiple of 16 bytes
  no_tma,       // the device, or the build, makes no TMA bulk copies
  link,  // a link between the GPUs may split the stores of LL128, so the call has another plan
  peer,  // another rank could not take the chosen path; its record says why
};
std::string_view name(Fallback fallback);

// A collective, or the messages of one call to or from one peer.
struct Entry {
  // First what each call has anew; then what calls of one kind share.
  //
  // Collectives count from 0 on every rank alike. Messages count for each peer, direction and
  // message tag, in memory of the host and of the device apart, so both ends give a message the
  // same number.
  std::uint64_t sequence = 0;
  std::int64_t scheduled_ns = 0;  // of the monotonic clock, like the others; 0: not seen
  std::int64_t started_ns = 0;
  std::int64_t launched_ns = 0;  // all of it was on its stream
  std::int64_t ended_ns = 0;
  std::uint64_t launch = 0;  // which of its communicator's launches, from 1; 0: none
  // Of a call in host memory, in which its thread combined data (engine/host/reduce_meter.h); 0:
  // not measured. The first line of a slot of the ring ends here.
  std::int64_t reducing_ns = 0;
  Collective collective = Collective::all_reduce;
  Protocol protocol = Protocol::simple;
  DataType type = DataType::uint8;
  ReduceOperation operation = ReduceOperation::sum;
  State state = State::scheduled;
  ChosenPath path;  // that ran
  Fallback fallback = Fallback::none;
  Path chosen = Path::host;     // where there was a fallback: instead of which
  bool knows_operation = true;  // what is not known is left out of the text
  bool is_captured = false;     // into a CUDA graph, whose replays have no entries
  bool is_send = false;         // of messages
  std::int32_t root = 0;
  std::int32_t peer = -1;  // of messages; -1: not known before one arrives
  std::uint32_t messages = 0;
  std::int32_t message_tag = 0;
  std::array<char, 44> plan{};  // the plan's name, cut to fit, ending in 0
  std::uint64_t bytes = 0;
  std::uint64_t tag = 0;           // the caller's
  std::int64_t connecting_ns = 0;  // in which a connection in host memory was being made
  std::uint64_t capture = 0;       // which of the launches into graphs, from 1; 0: none
  Waiting waiting;

  bool is_message() const { return collective == Collective::point_to_point; }
  void set_plan(std::string_view name);
};

// Written by one thread at a time (the one that drives the communicator), read by any.
class Ring {
 public:
  explicit Ring(std::size_t slots);

  // Writes the entry to the slot of that number. Neither blocks nor allocates. Entries of one kind,
  // if it is not 0, differ in their sequence number and times alone: where a slot holds one of
  // that kind, only its first line is written. Many small calls would else go through all of a ring
  // that is larger than a core's first cache.
  void write(std::uint64_t number, const Entry& entry, std::uint32_t kind = 0);
  // The entries held now, in the order of scheduled_ns. Entries that are being overwritten are left
  // out.
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
  static_assert(offsetof(Slot, data) + words_of_one_call * 8 <= 64);
  static bool read_slot(const Slot& slot, Entry& entry);
  std::optional<Entry> at(std::size_t slot) const;

  std::size_t slots_;
  // The slots, with room to begin them at a multiple of their alignment. An allocator's own aligned
  // memory would leave holes that glibc fills with nothing else: communicators come and go.
  std::unique_ptr<std::byte[]> memory_;
  Slot* ring_;
};

// Two clocks read at the same moment.
struct ClockAnchor {
  std::int64_t monotonic_ns = 0;
  std::int64_t wall_ns = 0;  // since 1970
  static ClockAnchor now();
};

// Who the record belongs to: the head of a dump.
struct Owner {
  std::uint64_t communicator = 0;
  std::string group;  // the communicator's name: "world", "world/0.1" for a split
  std::uint32_t epoch = 0;
  int rank = 0;
  int ranks = 0;                 // 0: not known
  int world_rank = -1;           // this rank in the job; -1: not known
  std::vector<int> world_ranks;  // by rank; empty: not known
  std::string node;
  int process = 0;
  // A living process writes its dump when the group fails, even if it makes no call.
  bool is_watched = false;
};

struct Failure {
  Error error;
  std::int64_t time_ns = 0;  // of the monotonic clock
};

// A replay of a captured call, as the kernel's stamps tell it.
struct Replay {
  std::uint64_t launch = 0;   // which of the stamped launches of its communicator, from 1
  std::uint64_t capture = 0;  // which of the calls that it captured, from 1
  std::optional<std::uint64_t> sequence;  // the captured collective's, while its entry is there
  State state = State::started;
  std::int64_t started_ns = 0;
  std::int64_t ended_ns = 0;
};

// What a connection in host memory has carried in one direction: of a direction that receives,
// posts and bytes alone.
struct Traffic {
  std::uint64_t posts = 0;  // messages, and puts and reads of one-sided steps
  std::uint64_t bytes = 0;
  // From the first post that was timed to the last one's end; 0 where none was.
  std::int64_t busy_ns = 0;
  std::int64_t idle_ns = 0;  // in which nothing was in flight
  std::uint64_t most_in_flight_bytes = 0;
  std::uint64_t mean_in_flight_bytes = 0;  // of the busy time
};

struct Connection {
  std::int32_t peer = -1;
  std::int32_t channel = -1;
  std::string transport;
  Protocol protocol = Protocol::simple;
  bool is_send = false;
  Traffic traffic;
};

// What a communicator knows of its calls at one moment. The failure closed all calls that were
// open.
struct Record {
  std::vector<Entry> collectives;
  std::vector<Entry> messages;
  std::vector<Replay> replays;
  std::vector<Connection> connections;     // that have carried something
  std::int64_t device_clock_error_ns = 0;  // of stamped times; 0: there are none
  std::vector<Waiting> waits;              // of a kernel's thread blocks that have waited for long
  std::optional<Failure> failure;
};

// What thread blocks of the kernel that runs wait for: of the oldest launch that has not ended.
void take_waits(Record& record, std::vector<Waiting> waits);

// docs/reference/record.md; docs/schema/record-v2.schema.json. `cause` says why it is written:
// "request", "signal", "failure", "peer", "exit" or "left"; of NCCL's plugin, "quiet" or
// "finalize". In the packed form, for files, all but the newest calls that have ended are columns.
enum class Form : std::uint8_t { words, packed };
std::string to_json(const Owner& owner, const Record& record, std::string_view cause,
                    const ClockAnchor& clock, Form form = Form::words);

}  // namespace unisono::trace
