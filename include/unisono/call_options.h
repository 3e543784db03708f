// A call's options are one value. Everything that chooses a plan for the call, or runs it, receives
// all of it.
#pragma once

#include <unisono/types.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

namespace unisono {

// Choices for one call; the defaults let the selection table choose. Of a group of messages it is
// misuse to name a plan: an algorithm, a protocol or channels.
struct CallOptions {
  std::string algorithm;  // "ring"; see `unisono plan list`
  std::optional<Protocol> protocol;
  int channels = 0;
  std::chrono::nanoseconds timeout{0};  // 0: the communicator's
  // A cudaStream_t or CUstream, possibly null for the default stream: the buffers are device
  // memory. Nothing: they are host memory. Messages between devices have tag 0 and a peer that is
  // named.
  std::optional<void*> stream = std::nullopt;
  // For a call on a stream, the same on all ranks. zero_sm serves what combines no elements:
  // all_gather, all_to_all, all_to_all_v, broadcast, gather, scatter and messages; the others are
  // misuse. Nothing: the communicator's.
  std::optional<Policy> policy = std::nullopt;
  // The limit on thread blocks, and so on SMs, of its kernels. Where every plan of a collective
  // needs more, the plan that needs fewest runs; of messages, every peer takes one for each
  // direction, whatever the limit is. Misuse if a plan is named and needs more. 0: the
  // communicator's limit, which may be any number.
  int max_sms = 0;
  // For a call on a stream, the same on all ranks: computation overlaps with it. A large
  // all-reduce, all-gather or reduce-scatter between few ranks then launches a small grid, if its
  // buffers are mapped on all ranks and max_sms is not as small already.
  bool compute_overlap = false;
  // For the record, which shows it; it changes nothing else.
  std::uint64_t tag = 0;

  // All ranks of a call must ask for these alike, because the plan and its path follow from them.
  // The timeout, the stream and the tag are each rank's own.
  auto agreed() const {
    return std::tie(algorithm, protocol, channels, policy, max_sms, compute_overlap);
  }
  bool agrees_with(const CallOptions& other) const { return agreed() == other.agreed(); }
  // The same where agrees_with() holds, in every process of one build.
  std::size_t agreed_hash() const;

  bool names_plan() const { return !algorithm.empty() || protocol || channels != 0; }
  bool limits_sms() const { return max_sms > 0; }
  bool allows(int sms) const { return max_sms <= 0 || sms <= max_sms; }
  // So many of `wanted` SMs as the call may take.
  int at_most(int wanted) const { return max_sms > 0 ? std::min(wanted, max_sms) : wanted; }
  // Lowers the limit to `sms`. 0 leaves it as it is.
  void limit_sms(int sms) {
    if (sms > 0 && allows(sms)) max_sms = sms;
  }
};

}  // namespace unisono
