// How fast the kernel copies between processes, compared with two copies through memory that both
// map.
#pragma once

namespace unisono::sys {

// What a byte costs two processes by each way, on different cores where this process may use more
// than one.
struct CopyCosts {
  double slots_ns_per_byte = 0;   // of both: into the shared memory, and out of it
  double kernel_ns_per_byte = 0;  // of the reader alone; 0 where the kernel does not copy
  // How many times the bytes the kernel moves while processors are as long busy; 0: it moves none.
  double gain() const {
    return kernel_ns_per_byte > 0 ? slots_ns_per_byte / kernel_ns_per_byte : 0;
  }
};

// Measured now with two threads, in about a millisecond: the least of several copies of 64 KiB
// that the other core has just written. Nothing is measured, and there is no gain, where no thread
// starts.
CopyCosts measure_copies();

}  // namespace unisono::sys
