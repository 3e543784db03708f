// Runs kernels that are compiled for the host: a fiber for each thread of a block, an operating
// system's thread for each block, of which one runs at a time.
//
// A warp's lanes run in turn from one meeting of the warp to the next, so that its loads and stores
// between two meetings are seen together, as LL128 needs of a device. Which warp and which block
// comes next is random.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace unisono::emulated {

struct Index {
  unsigned x = 0;
};
// Of the thread that runs.
struct Indices {
  Index thread;
  Index block;
  Index threads;
  Index blocks;
};
const Indices& indices();

// Every thread of every block calls `kernel` once; returns when all have. Any thread.
void run(unsigned blocks, unsigned threads, const std::function<void()>& kernel);

// Of the thread that runs, in a kernel. A meeting of its warp: the lanes' values, by lane.
const std::uint64_t* meet_warp(std::uint64_t value);
// Of its block: whether any thread's value is not 0.
bool meet_block(bool value);
// Lets others run.
void yield();
// Before a load that may be one of a loop's: lets others run if the thread has loaded from there
// since it last did.
void before_polling(const void* at);

// Copies of the block's, made at some time after they were asked for.
void copy_later(void* to, const void* from, std::size_t bytes, std::function<void()> when_done);

}  // namespace unisono::emulated
