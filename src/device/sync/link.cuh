// Waiting on a connection in protocol Simple, by one thread of a block: for a message, for a slot,
// for the receiver's word on where messages go.
#pragma once

#include <cstdint>

#include "device/kernels/address.cuh"
#include "device/link.h"
#include "device/ptx/memory.cuh"
#include "device/sync/wait.cuh"

namespace unisono::device {

// Where a link's end signals that message `sent` + 1 has arrived: a word for each slot, for a
// sender may be in its next call already. Zero-copy messages of one call, which take no slot, may
// have stored later numbers there.
__device__ __forceinline__ std::uint64_t* arrived_at(std::uint64_t signals, std::uint32_t slots,
                                                     std::uint64_t sent) {
  return at_address<std::uint64_t>(signals) + (static_cast<std::uint32_t>(sent) & (slots - 1));
}

// A word that a thread polls. In memory of the host each load takes a round trip over PCIe, so it
// is an acquire at once; of one in device memory, loads stay relaxed until the awaited value is
// there.
template <bool is_ring>
__device__ __forceinline__ std::uint64_t poll_word(const std::uint64_t* word) {
  return is_ring ? ptx::load_acquire_sys(word) : ptx::load_relaxed_sys(word);
}

// Until more than `received` messages are complete, the next of them of the call of that tag.
template <bool is_ring>
__device__ inline bool wait_for_arrival(const Watch& watch, const Place& place, const Link& link,
                                        std::uint32_t slots, std::uint64_t received,
                                        std::uint32_t tag) {
  const Wanted wanted{Failure::message, link.peer, link.channel, received + 1};
  const std::uint64_t* arrived = arrived_at(link.in_arrived, slots, received);
  const std::uint64_t expected = flag_of(tag, received + 1);
  const auto has_arrived = [&](std::uint64_t& seen) {
    const std::uint64_t flag = poll_word<is_ring>(arrived);
    seen = number_of(flag);
    return flag - expected < most_ahead;
  };
  if (!wait_until(watch, place, wanted, has_arrived)) return false;
  // Acquire: the message's bytes after it.
  if constexpr (!is_ring) ptx::load_acquire_sys(arrived);
  return true;
}

// Until a slot is free for message `sent` + 1. `given_back` is what this thread knew last.
template <bool is_ring>
__device__ inline bool wait_for_credit(const Watch& watch, const Place& place, const Link& link,
                                       std::uint32_t slots, std::uint64_t sent,
                                       std::uint64_t& given_back) {
  if (sent - given_back < slots) return true;
  const Wanted wanted{Failure::credit, link.peer, link.channel, sent + 1 - slots};
  const auto* credits = at_address<const std::uint64_t>(link.out_given_back);
  const auto is_free = [&](std::uint64_t& seen) {
    seen = poll_word<is_ring>(credits);
    if constexpr (is_ring) given_back = seen;
    return sent - seen < slots;
  };
  if (!wait_until(watch, place, wanted, is_free)) return false;
  // Acquire: the peer's reads of the slot happen before our writes to it.
  if constexpr (!is_ring) given_back = ptx::load_acquire_sys(credits);
  return true;
}

// What a launch knows at first of the messages of ours that the peer has given back.
template <bool has_rings>
__device__ __forceinline__ std::uint64_t known_given_back(const Link& link,
                                                          const LinkCounters& counters) {
  if (has_rings && link.is_ring()) return counters.given_back;
  return ptx::load_acquire_sys(at_address<std::uint64_t>(link.out_given_back));
}

// Until the peer has posted for the time after `heeded`, in a call of that tag. Posts of later
// times mean that nothing was to be sent to the peer then.
__device__ inline bool wait_for_addresses(const Watch& watch, const Place& place, const Link& link,
                                          std::uint64_t heeded, std::uint32_t tag) {
  const Wanted wanted{Failure::destination, link.peer, link.channel, heeded + 1};
  const auto* number = &at_address<const PeerAddresses>(link.out_addresses)->number;
  const std::uint64_t expected = flag_of(tag, heeded + 1);
  const auto has_addresses_arrived = [&](std::uint64_t& seen) {
    const std::uint64_t flag = ptx::load_relaxed_sys(number);
    seen = number_of(flag);
    return flag == expected || number_of(flag - heeded - 2) < number_of(most_ahead);
  };
  if (!wait_until(watch, place, wanted, has_addresses_arrived)) return false;
  // Acquire: the addresses, and the peer's reads of what is there, before our stores.
  ptx::load_acquire_sys(number);
  return true;
}

// After the addresses, which were stored before by threads that a barrier has joined with this one.
// Release: they, and this rank's own use of the destinations, come first.
__device__ __forceinline__ void signal_addresses(const Link& link, std::uint32_t tag,
                                                 std::uint64_t number) {
  ptx::store_release_sys(&at_address<PeerAddresses>(link.in_addresses)->number,
                         flag_of(tag, number));
}

}  // namespace unisono::device
