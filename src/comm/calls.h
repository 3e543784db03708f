// What can be told of a call before anything is started.
#pragma once

#include <unisono/communicator.h>

#include "engine/engine.h"

namespace unisono::comm {

// Misuse, naming the value, the rank and what would be right.
Status check_call(const Call& call, const plan::Header& shape, int rank);
Status check_message(const Message& message, int rank, int ranks, std::size_t messages);

// Whether the pointers alias as plan.h's "Aliasing" says, on this rank.
bool is_in_place(const Call& call, int rank);

// Whether the buffers are there, and apart if not in place; for a call that is right in all else.
bool buffers_fit(const Call& call, std::uint64_t input_bytes, std::uint64_t output_bytes,
                 bool in_place);

// A plan's header with what decides the shape of its buffers; of collectives with a fixed meaning.
plan::Header shape_of(const Call& call, int ranks);

// Bytes of one block; 0 for calls whose blocks differ.
std::uint64_t block_bytes(const Call& call);

// The engine's view of a call. For all_to_all_v the spans of the call must outlive the arguments.
engine::Arguments arguments_of(const Call& call);

// What ranks must agree on, in a form that can be compared and told: for UNISONO_CHECK_CALLS.
struct Fingerprint {
  std::int32_t collective = 0;
  std::int32_t type = 0;
  std::int32_t operation = 0;
  std::int32_t root = 0;
  std::int64_t count = 0;
  std::int64_t options = 0;  // a hash of the algorithm, protocol and channels asked for
  bool operator==(const Fingerprint&) const = default;
};
Fingerprint fingerprint(const Call& call);
std::string describe(const Fingerprint& fingerprint);

}  // namespace unisono::comm
