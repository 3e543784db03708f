// A call made ready to run: what carries it, its data, and what is recorded of it.
#pragma once

#include <unisono/communicator.h>

#include <cstdint>
#include <string_view>

#include "engine/engine.h"
#include "trace/record.h"

namespace unisono::comm {

// The thread that runs it completes the entry and records it.
struct PreparedCall {
  engine::Execution* execution = nullptr;  // null: nothing is prepared
  engine::Arguments arguments;
  trace::Entry entry;
  std::uint32_t kind = 0;    // as trace::Ring::write() says
  std::uint64_t number = 0;  // of a message's entry in the record

  // Makes the entry one of messages.
  void set_messages(std::string_view plan) {
    entry.collective = Collective::point_to_point;
    entry.type = DataType::uint8;
    entry.set_plan(plan);
  }
};

// A collective call as its caller states it. Everything inside a communicator takes it so: a Call
// owns its options, and making one takes longer than a small call does.
struct CallView {
  Collective collective;
  const void* input;
  void* output;
  std::int64_t count;
  DataType type;
  ReduceOperation operation;
  int root;
  const CallOptions& options;
  engine::ScaleFactor multiplier = {};
  const Call* whole = nullptr;  // all_to_all_v: has the lists. Calls by name have none.

  engine::Blocks sent() const { return {whole->send_counts, whole->send_displacements}; }
  engine::Blocks received() const { return {whole->recv_counts, whole->recv_displacements}; }
};

// The last call of a collective, kept for the next one like it. Addresses may differ.
struct PreparedCollective : PreparedCall {
  // The caller's: the arguments of a barrier differ.
  std::int64_t count = 0;
  int root = 0;
  CallOptions asked;
  bool in_place = false;
  std::uint64_t input_bytes = 0;
  std::uint64_t output_bytes = 0;

  bool serves(const CallView& call) const {
    return execution != nullptr && count == call.count && root == call.root &&
           entry.type == call.type && entry.operation == call.operation &&
           asked.agrees_with(call.options);
  }
  bool has_buffers(const void* input, const void* output) const {
    return input == arguments.input && output == arguments.output;
  }
};

}  // namespace unisono::comm
