// A call made ready to run: what carries it, its data, and what is recorded of it.
#pragma once

#include <unisono/communicator.h>

#include <cstdint>

#include "engine/engine.h"
#include "trace/record.h"

namespace unisono::comm {

// The thread that runs it completes the entry and records it.
struct PreparedCall {
  engine::Execution* execution = nullptr;  // null: nothing is prepared
  engine::Arguments arguments;             // its timeout is the call's
  trace::Entry entry;
  std::uint32_t kind = 0;    // as trace::Ring::write() says
  std::uint64_t number = 0;  // of a message's entry in the record
};

// A collective call as its caller states it: what it needs of a Call, which takes longer to make
// than a small call takes.
struct CallView {
  Collective collective;
  const void* input;
  void* output;
  std::int64_t count;
  DataType type;
  ReduceOperation operation;
  int root;
  const CallOptions& options;
};

// The last call of a collective, kept for the next one like it. Addresses may differ.
struct PreparedCollective : PreparedCall {
  // The caller's: the arguments of a barrier differ.
  std::int64_t count = 0;
  int root = 0;
  CallOptions options;
  bool in_place = false;
  std::uint64_t input_bytes = 0;
  std::uint64_t output_bytes = 0;

  bool serves(const CallView& call) const {
    return execution != nullptr && count == call.count && root == call.root &&
           entry.type == call.type && entry.operation == call.operation &&
           options.channels == call.options.channels && options.protocol == call.options.protocol &&
           options.timeout == call.options.timeout && options.policy == call.options.policy &&
           options.max_sms == call.options.max_sms &&
           options.compute_overlap == call.options.compute_overlap &&
           options.tag == call.options.tag && options.algorithm == call.options.algorithm;
  }
  bool has_buffers(const void* input, const void* output) const {
    return input == arguments.input && output == arguments.output;
  }
};

}  // namespace unisono::comm
