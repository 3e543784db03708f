// What a fork does to a process that has communicators.
//
// The child has copies of its parent's memory and descriptors, maps the same shared memory, and has
// none of its threads. So whatever it did with the parent's communicators it would do as the
// parent.
#pragma once

#include <atomic>
#include <cstdint>

namespace unisono::sys {

// In the child, before the fork returns. Relaxed: each process has its own, which changes while it
// has one thread.
extern std::atomic<std::uint32_t> forks;

// How many forks lie between this process and the first of its ancestors that had this library. An
// object that remembers the number of when it was made knows whether it belongs to this process.
inline std::uint32_t fork_count() { return forks.load(std::memory_order_relaxed); }

// Forked children close their copy of this descriptor at once: a connection ends for the peer when
// all copies are closed, so that a child that outlives its parent would hide the parent's death.
void keep_from_children(int descriptor);
// Closes a descriptor that was kept from children, unless this process is one.
void close_kept(int descriptor);

}  // namespace unisono::sys
