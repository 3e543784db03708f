// Two words say what the ranks of a call must agree on; they travel with every message of the call.
#pragma once

#include <unisono/types.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace unisono {

// What a rank calls. A field that the ranks need not agree on is left as it is here.
struct Fingerprint {
  Collective collective = Collective::barrier;
  DataType type = DataType::int8;
  ReduceOperation operation = ReduceOperation::sum;
  // For custom: a hash of the program's name.
  std::uint32_t root = 0;
  std::int64_t count = 0;
};

// The two ranks of a message must agree on this.
constexpr Fingerprint message_fingerprint(DataType type, std::int64_t count) {
  return {.collective = Collective::point_to_point, .type = type, .count = count};
}

// Never 0, which stands for no call. The word decodes to the call: it holds a root below 2^16 and a
// count below 2^34, of larger ones the low bits.
std::uint64_t pack(const Fingerprint& fingerprint);

// "all_reduce of 10 float32, sum", of a packed fingerprint. It may come from a peer: any word has a
// description.
std::string describe_call(std::uint64_t fingerprint);

// Which call a message belongs to.
struct CallId {
  std::uint64_t what = 0;  // a packed fingerprint; 0: no call
  // Of a collective: how many its communicator has started before it, and plan_id(). Messages of
  // send and recv have neither: only the two ranks of a pair count them.
  std::uint32_t number = 0;
  std::uint32_t plan = 0;
  bool operator==(const CallId&) const = default;
};
static_assert(sizeof(CallId) == 16);

// Fits where a CallId does not: a hash of the call and its plan is all that it has; 0 stands for no
// call. The number is left out, because a call in a CUDA graph runs many times.
std::uint32_t call_tag(const CallId& call);

// Where a plan runs. Which kernel runs it may depend on a rank's buffers: all are one place.
enum class Place : std::uint8_t { host, device, copy_engines, staged, mixed };

// Names a plan with its protocol, channels and place, the same on all ranks. `digest` tells plans
// of one name apart; 0 for a built-in algorithm. Remembers the name, for describe_plan().
std::uint32_t plan_id(std::string_view name, std::uint64_t digest, Protocol protocol, int channels,
                      Place place = Place::host);
// "ring, simple, 2 channels"; of a name that this process has not met, a number.
std::string describe_plan(std::uint32_t plan);

// describe_call(), and in what else it differs from another rank's: its number, or its plan and
// where that runs.
std::string describe_call(const CallId& call, const CallId& other);

}  // namespace unisono
