// Runs kernels that are compiled for the host: each thread of a block is a fiber, and whoever calls
// Kernel::step() runs some of them on the calling thread.
//
// The lanes of a warp run one after another from one meeting of the warp to the next. All of them
// leave a meeting in the same pass, so that other warps and blocks see what a warp loads and stores
// between two meetings as one access. LL128 needs that of a device. A seed decides which warp and
// which block runs next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>

namespace unisono::emulated {

using Random = std::minstd_rand;

struct Index {
  unsigned x = 0;
};
// Indices of the running thread.
struct Indices {
  Index thread;
  Index block;
  Index threads;
  Index blocks;
};
const Indices& indices();

enum class Progress { none, some, complete };

// One launch. Every thread of every block calls `code` once.
class Kernel {
 public:
  Kernel(unsigned blocks, unsigned threads, const std::function<void()>& code);
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  // Runs a block that `random` chooses for some turns. One caller at a time in the process.
  Progress step(Random& random);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The following are for kernels' code.

// Meets the other lanes of the warp; returns the lanes' values, by lane.
const std::uint64_t* meet_warp(std::uint64_t value);
// Meets the other threads of the block; returns whether any thread's value is not 0.
bool meet_block(bool value);
// Lets others run.
void yield();
// Called before a load that may be one of a loop's: lets others run if the thread has loaded from
// there since it last did.
void before_polling(const void* at);

// Copies of the block, made at some time after they were asked for.
void copy_later(void* to, const void* from, std::size_t bytes, std::function<void()> when_done);
// The running thread's groups of bulk stores, the oldest first: how many of each are still to be
// made.
std::deque<int>& groups_of_stores();

}  // namespace unisono::emulated
