// How the hosts at both ends of a connection agree on where a copy engine stores a message: where
// the receiver says, or through slots.
//
// A copy engine is given addresses when its copy is put on a stream, so the sender's host must know
// the place by then. A word for each message, in memory of both, decides, and the end that is
// first writes it: the receiver, where it wants the message; or the sender, that it does not
// wait any longer and goes through slots. So neither waits for the other's host for long, in calls
// that are captured too. Both ends count the same messages, in the same order.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

#include "sys/cuda/driver.h"
#include "transport/transport.h"

namespace unisono::engine::gpu {

struct CopyRendezvous {
  enum class Way : std::uint8_t { undecided, slots, zero_copy };
  Way way = Way::undecided;
  sys::cuda::DeviceAddress at = 0;  // zero-copy: in the sender's addresses
  bool is_captured = false;         // zero-copy: into a graph of the receiver's
};

// The rendezvous of one direction, in the receiver's memory.
class CopyRendezvousBook {
 public:
  // Messages that one end may be ahead of the other.
  static constexpr std::uint64_t room = 64;

  // `message` counts from 1. Undecided: the sender is so far behind that there is no room.
  CopyRendezvous receiver_arrives(std::uint64_t message, const CopyRendezvous& wanted);
  // Undecided: the receiver has not come, and the sender `waits`, or there is no room.
  CopyRendezvous sender_arrives(std::uint64_t message, bool waits);

 private:
  struct Entry {
    // The last message decided in this entry: its number, whether it is captured, its path.
    // Release when it is stored, acquire when it is loaded: `at` is stored before.
    std::atomic<std::uint64_t> word;
    std::atomic<std::uint64_t> at;
  };
  static constexpr int number_shift = 3;
  static std::uint64_t word_of(std::uint64_t message, const CopyRendezvous& decided);
  static CopyRendezvous read(const Entry& entry, std::uint64_t message);
  // Whether `decided` is what counts.
  static bool decide(Entry& entry, std::uint64_t message, const CopyRendezvous& decided);

  Entry entries_[room];
  // Messages that the end is through with. Release, and acquire: it has read their entries.
  std::atomic<std::uint64_t> sender_done_;
  std::atomic<std::uint64_t> receiver_done_;
};
static_assert(sizeof(CopyRendezvousBook) <= transport::DeviceLink::host_bytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "two processes share them");

}  // namespace unisono::engine::gpu
