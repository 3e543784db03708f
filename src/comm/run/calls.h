// What can be told of a call before anything is started.
#pragma once

#include <unisono/communicator.h>

#include <span>

#include "base/fingerprint.h"
#include "base/fixed_text.h"
#include "comm/run/prepared_call.h"
#include "engine/engine.h"

namespace unisono::comm {

// Misuse, naming the value, the rank and what would be right. Of a right call, whether it is in
// place.
Result<bool> check_call(const CallView& call, const plan::Header& shape, int rank);
Status check_message(const Message& message, int rank, int ranks, std::size_t messages);
Status check_options_of_messages(const CallOptions& options, int rank);
// The same of what messages between devices cannot have.
Status check_message_on_stream(const Message& message, int rank);

// `call` must outlive it.
CallView view_of(const Call& call);

// Whether the pointers alias as plan.h's "Aliasing" says, on this rank.
bool is_in_place(const CallView& call, int rank);

// Whether the buffers are there, and apart if not in place; for a call that is right in all else.
bool buffers_fit(const CallView& call, std::uint64_t input_bytes, std::uint64_t output_bytes,
                 bool in_place);

// A plan's header with what decides the shape of its buffers; of collectives with a fixed meaning.
plan::Header shape_of(const CallView& call, int ranks);

// Bytes of one block; 0 for calls whose blocks differ.
std::uint64_t block_bytes(const CallView& call);

// The engine's view of a call. For all_to_all_v the spans of the call must outlive the arguments.
engine::Arguments arguments_of(const CallView& call);

// What ranks must agree on.
Fingerprint fingerprint(const CallView& call);

// What each rank shows the others before a call, for UNISONO_CHECK_CALLS.
struct CallCard {
  std::uint64_t call = 0;     // its fingerprint, packed
  std::uint64_t options = 0;  // a hash of those that ranks agree on
  std::uint32_t plan = 0;     // what it was chosen to run as, if it can be made: plan_id()
  FixedText<180> refusal;     // why this rank cannot make the call; empty if it can
};
CallCard card_of(const CallView& call, const PreparedCall& prepared, const Status& is_right);
// Misuse, naming the rank that cannot make call `sequence`, or two that disagree on it.
Status compare(std::span<const CallCard> cards, std::uint64_t communicator, std::uint64_t sequence);

}  // namespace unisono::comm
