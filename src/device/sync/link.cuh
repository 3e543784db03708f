// Waiting on a connection in protocol Simple, by one thread of a block: for a message, for a slot,
// for the receiver's word on where messages go.
#pragma once

#include <cstdint>

#include "device/kernels/address.cuh"
#include "device/link.h"
#include "device/ptx/memory.cuh"
#include "device/sync/wait.cuh"

namespace unisono::device {

// Until more than `received` messages are complete; the link's signal counts them.
__device__ inline bool wait_for_arrival(const Watch& watch, const Place& place, const Link& link,
                                        std::uint64_t received) {
  const Wanted wanted{Failure::message, link.peer, link.channel, received + 1};
  const auto* arrived = at_address<const std::uint64_t>(link.in_arrived);
  const auto has_arrived = [&](std::uint64_t& seen) {
    seen = ptx::load_relaxed_sys(arrived);
    return seen > received;
  };
  if (!wait_until(watch, place, wanted, has_arrived)) return false;
  // Acquire: the message's bytes after it.
  ptx::load_acquire_sys(arrived);
  return true;
}

// Until a slot is free for message `sent` + 1. `given_back` is what this thread knew last.
__device__ inline bool wait_for_credit(const Watch& watch, const Place& place, const Link& link,
                                       std::uint32_t slots, std::uint64_t sent,
                                       std::uint64_t& given_back) {
  if (sent - given_back < slots) return true;
  const Wanted wanted{Failure::credit, link.peer, link.channel, sent + 1 - slots};
  const auto* credits = at_address<const std::uint64_t>(link.out_given_back);
  const auto is_free = [&](std::uint64_t& seen) {
    seen = ptx::load_relaxed_sys(credits);
    return sent - seen < slots;
  };
  if (!wait_until(watch, place, wanted, is_free)) return false;
  // Acquire: the peer's reads of the slot happen before our writes to it.
  given_back = ptx::load_acquire_sys(credits);
  return true;
}

// Until the peer has posted for the time after `heeded`.
__device__ inline bool wait_for_addresses(const Watch& watch, const Place& place, const Link& link,
                                          std::uint64_t heeded) {
  const Wanted wanted{Failure::destination, link.peer, link.channel, heeded + 1};
  const auto* number = &at_address<const PeerAddresses>(link.out_addresses)->number;
  const auto has_addresses_arrived = [&](std::uint64_t& seen) {
    seen = ptx::load_relaxed_sys(number);
    return seen > heeded;
  };
  if (!wait_until(watch, place, wanted, has_addresses_arrived)) return false;
  // Acquire: the addresses, and the peer's reads of what is there, before our stores.
  ptx::load_acquire_sys(number);
  return true;
}

// After the addresses, which were stored before by threads that a barrier has joined with this one.
// Release: they, and this rank's own use of the destinations, come first.
__device__ __forceinline__ void signal_addresses(const Link& link, std::uint64_t number) {
  ptx::store_release_sys(&at_address<PeerAddresses>(link.in_addresses)->number, number);
}

}  // namespace unisono::device
