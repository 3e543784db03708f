// The host engine: runs one rank's program on CPU memory.
//
// Thread blocks are state machines, polled in turn by the thread that drives the communicator.
// poll() never blocks, allocates, locks or calls the system on the way of a small message.
#pragma once

#include <unisono/call_options.h>
#include <unisono/result.h>
#include <unisono/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/fingerprint.h"
#include "engine/reduce/reduce.h"
#include "plan/check.h"
#include "plan/plan.h"
#include "trace/record.h"
#include "transport/fifo.h"

namespace unisono::engine {

// Blocks of unequal size (all_to_all_v, point_to_point): elements in each block and where it
// starts, in elements from input or output. Empty: blocks of one size, one after another. The lists
// must stay valid until the execution is complete.
struct Blocks {
  std::span<const std::int64_t> counts = {}, displacements = {};
  // Where each block is a message of its own, with its own fingerprint instead of the call's; else
  // empty.
  std::span<const std::uint64_t> calls = {};
};

// The data of one call. Buffers are shaped by plan.h: input_blocks_of() blocks of `count` elements
// and so on. input and output alias exactly when the plan is in place.
struct Arguments {
  const void* input = nullptr;
  void* output = nullptr;
  std::int64_t count = 0;  // elements in a block
  DataType type = DataType::uint8;
  ReduceOperation operation = ReduceOperation::sum;
  ScaleFactor pre_multiplier;  // pre_multiplied_sum only: this rank's scalar
  // What the ranks must agree on: the host engine's messages carry it.
  CallId call;
  // The caller's, and the communicator's where these leave something open.
  CallOptions options = {};
  // As Execution::path() says of these arguments; of the host: the GPU engine asks itself.
  trace::ChosenPath path;

  Blocks inputs, outputs;

  const Blocks& blocks(plan::Buffer buffer) const {
    return buffer == plan::Buffer::input ? inputs : outputs;
  }
  bool is_uneven() const { return !inputs.counts.empty() || !outputs.counts.empty(); }
  bool is_on_stream() const { return options.stream.has_value(); }
  void* stream() const { return options.stream.value_or(nullptr); }
  std::int64_t timeout_ns() const { return options.timeout.count(); }
};

// What a running execution needs of its communicator. Implemented by src/comm and by tests.
class Resources {
 public:
  virtual ~Resources() = default;
  // The fifo of a connection, made on first use; nullptr while the connection is being made.
  virtual Result<transport::SendFifo*> send_fifo(int peer, int channel, Protocol protocol) = 0;
  virtual Result<transport::RecvFifo*> recv_fifo(int peer, int channel, Protocol protocol) = 0;
  // The connection itself, through which one-sided steps reach a peer's memory. A bug
  // where plans only send messages.
  virtual Result<transport::Connection*> connection(int peer, int channel);
  // Moves the bytes of connections that are not mapped; poll() calls it when it cannot advance.
  virtual Status progress() = 0;
  // Scratch memory of at least `bytes`, aligned to 64; the same memory may be returned to the next
  // call.
  virtual Result<void*> scratch(std::size_t bytes) = 0;
  // Whether time is the machine's, so that the processor's counter measures it.
  virtual bool is_time_real() const { return true; }
};

using trace::Waiting;

// The record tells how long combining took where a call combines so much at a time.
inline constexpr std::size_t least_measured_bytes = std::size_t{16} << 10;

// One rank's program made ready to run, again and again. Holds no reference to the plan it came
// from.
class Execution {
 public:
  virtual ~Execution() = default;

  // Begins a call. Only when no call is running. Misuse if the arguments do not fit the plan.
  virtual Status start(const Arguments& arguments) = 0;
  // Advances; true when this rank's part is complete and its buffers may be used again. An error is
  // final for the communicator.
  virtual Result<bool> poll() = 0;
  // Whether the last poll() moved anything: for the decision to spin or to sleep.
  virtual bool progressed() const = 0;
  virtual Waiting waiting() const = 0;
  // The same of every thread block that waits for another rank, not of the least advanced one
  // alone: any of these ranks may be the one that holds up the call. For calls that are stuck; it
  // allocates.
  virtual std::vector<Waiting> waits() const { return {waiting()}; }
  // Whether the last poll() found a thread block waiting for that rank, as far as this engine
  // knows.
  virtual bool awaits(int) const { return true; }
  // Whether an event may end what the last poll() found waiting, as far as this engine knows:
  // messages through shared memory have none.
  virtual bool awaits_event() const { return true; }
  // Whether something else may end it, too.
  virtual bool awaits_memory() const { return true; }
  // In which the thread that polled the last call combined data, in pieces of at least
  // least_measured_bytes; 0 where this engine does not measure it.
  virtual std::int64_t reducing_ns() const { return 0; }
  // What carries a call with these arguments.
  virtual trace::ChosenPath path(const Arguments&) const { return {}; }
  // Memory that the program and its state hold, about, in bytes.
  virtual std::size_t memory_bytes() const = 0;
};

// Memory and thread blocks a host engine runs; the operations that it implements.
plan::Limits limits();

// Chunks go through a plan in at least `tiles` tiles, unless these would be of less than
// `least_bytes`: a tile's later steps overlap the next one's earlier steps, so that of a chain of s
// steps (s - 1) / (tiles + s - 1) of the time is lost to filling and draining it. The same on every
// rank. Over a socket a message costs some 10 us, in which a link of 10 Gbit/s carries 12 KiB.
struct Tiling {
  int tiles = 1;
  std::size_t least_bytes = std::size_t{32} << 10;
};

// What one-sided steps tell their peers goes on a channel that no plan has.
inline constexpr int one_sided_channel = (1 << 16) - 1;

// `partners` are the ranks that reach into this one's memory with one-sided steps, or into whose
// memory this one reaches: plan::partners(). A call of such a plan begins and ends together with
// theirs. Its blocks have one size.
Result<std::unique_ptr<Execution>> make_execution(const plan::Header& header,
                                                  const plan::RankProgram& program,
                                                  Resources& resources,
                                                  const transport::FifoOptions& options,
                                                  const Tiling& tiling = {},
                                                  std::span<const int> partners = {});

}  // namespace unisono::engine
