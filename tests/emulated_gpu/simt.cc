#include "simt.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <semaphore>
#include <thread>
#include <vector>

namespace unisono::emulated {
namespace {

constexpr unsigned lanes = 32;
constexpr std::size_t stack_bytes = std::size_t{128} << 10;
// Passes over a warp's lanes before another's turn, at most.
constexpr int most_passes = 8;
// Of all warps, before another block's.
constexpr int most_turns = 8;
constexpr std::size_t most_polled = 64;

using Random = std::minstd_rand;

// One block at a time, whoever waits, at random.
class Baton {
 public:
  void take() {
    std::unique_lock lock(mutex_);
    if (is_free_) {
      is_free_ = false;
      return;
    }
    std::binary_semaphore mine(0);
    waiting_.push_back(&mine);
    lock.unlock();
    mine.acquire();
  }
  void give() {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty()) {
      is_free_ = true;
      return;
    }
    std::swap(waiting_[random_() % waiting_.size()], waiting_.back());
    waiting_.back()->release();
    waiting_.pop_back();
  }

 private:
  std::mutex mutex_;
  bool is_free_ = true;
  std::vector<std::binary_semaphore*> waiting_;
  Random random_{std::random_device{}()};
};

Baton& baton() {
  static Baton one;
  return one;
}

// Of fibers that are over.
class Stacks {
 public:
  std::unique_ptr<std::byte[]> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::unique_ptr<std::byte[]>(new std::byte[stack_bytes]);
    auto stack = std::move(free_.back());
    free_.pop_back();
    return stack;
  }
  void give(std::unique_ptr<std::byte[]> stack) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(stack));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<std::byte[]>> free_;
};

Stacks& stacks() {
  static Stacks all;
  return all;
}

// Where threads meet: each is at most one meeting ahead of another.
template <class Value>
struct Meeting {
  std::uint64_t number = 0;
  unsigned expected = 0;
  unsigned arrived = 0;
  std::array<Value, 2> values{};

  Value& coming() { return values[number % 2]; }
  void close_if_complete() {
    if (arrived < expected || expected == 0) return;
    arrived = 0;
    ++number;
    coming() = {};
  }
  void leave() {
    --expected;
    close_if_complete();
  }
};
using WarpMeeting = Meeting<std::array<std::uint64_t, lanes>>;
using BlockMeeting = Meeting<bool>;

struct Fiber {
  // Where it began, and where it is: the C library saves signal masks with the first, by a system
  // call.
  ucontext_t beginning;
  jmp_buf place;
  bool has_begun = false;
  std::unique_ptr<std::byte[]> stack;
  Indices indices;
  bool is_over = false;
  // Waits until that meeting's number is another.
  const std::uint64_t* meeting = nullptr;
  std::uint64_t number = 0;
  std::array<const void*, most_polled> polled{};
  std::size_t polls = 0;

  bool may_run() const { return !is_over && (meeting == nullptr || *meeting != number); }
};

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
  std::function<void()> when_done;
};

class Block;
thread_local Block* this_block = nullptr;

class Block {
 public:
  Block(unsigned number, unsigned blocks, unsigned threads, const std::function<void()>& kernel)
      : kernel_(kernel), fibers_(threads), warps_((threads + lanes - 1) / lanes) {
    block_meeting_.expected = threads;
    for (unsigned i = 0; i < threads; ++i) {
      ++warps_[i / lanes].expected;
      Fiber& fiber = fibers_[i];
      fiber.indices = {{i}, {number}, {threads}, {blocks}};
      fiber.stack = stacks().take();
      getcontext(&fiber.beginning);
      fiber.beginning.uc_stack.ss_sp = fiber.stack.get();
      fiber.beginning.uc_stack.ss_size = stack_bytes;
      fiber.beginning.uc_link = nullptr;
      makecontext(&fiber.beginning, &Block::begin, 0);
    }
  }
  ~Block() {
    for (Fiber& fiber : fibers_) stacks().give(std::move(fiber.stack));
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void run() {
    this_block = this;
    std::vector<unsigned> order(warps_.size());
    for (unsigned i = 0; i < order.size(); ++i) order[i] = i;
    while (left_ > 0) {
      baton().take();
      bool goes_on = true;
      for (int turn = 0; turn < most_turns && goes_on && left_ > 0; ++turn) {
        goes_on = make_copies();
        std::shuffle(order.begin(), order.end(), random_);
        for (const unsigned warp : order) goes_on = run_warp(warp) || goes_on;
      }
      baton().give();
    }
    this_block = nullptr;
  }

  Fiber& current() { return *current_; }
  WarpMeeting& warp_meeting() { return warps_[current_->indices.thread.x / lanes]; }
  BlockMeeting& block_meeting() { return block_meeting_; }
  // Until the meeting that the fiber has come to is over. Who comes last, too, goes on when its
  // warp's turn has come again, behind the lanes before it.
  template <class Value>
  void await(Meeting<Value>& meeting) {
    Fiber& fiber = *current_;
    fiber.meeting = &meeting.number;
    fiber.number = meeting.number;
    ++meeting.arrived;
    meeting.close_if_complete();
    switch_away();
    fiber.meeting = nullptr;
    fiber.polls = 0;
  }
  void yield() {
    has_yielded_ = true;
    current_->polls = 0;
    switch_away();
  }
  void add(Copy copy) { copies_.push_back(std::move(copy)); }

 private:
  static void begin() {
    Block& block = *this_block;
    block.kernel_();
    block.end();
  }
  void end() {
    current_->is_over = true;
    --left_;
    warp_meeting().leave();
    block_meeting_.leave();
    switch_away();
  }
  void switch_away() {
    if (_setjmp(current_->place) == 0) _longjmp(scheduler_, 1);
  }
  [[gnu::noinline]] void switch_to(Fiber& fiber) {
    current_ = &fiber;
    if (_setjmp(scheduler_) != 0) return;
    if (fiber.has_begun) _longjmp(fiber.place, 1);
    fiber.has_begun = true;
    setcontext(&fiber.beginning);
  }
  // Whether it came further than to look once more at what it waits for.
  bool run_warp(unsigned warp) {
    const unsigned first = warp * lanes;
    const unsigned end = std::min<unsigned>(first + lanes, static_cast<unsigned>(fibers_.size()));
    has_yielded_ = false;
    for (int pass = 0; pass < most_passes; ++pass) {
      bool has_run = false;
      for (unsigned i = first; i < end; ++i) {
        if (!fibers_[i].may_run()) continue;
        has_run = true;
        switch_to(fibers_[i]);
      }
      if (!has_run || has_yielded_) return pass > 0 && !has_yielded_;
    }
    return true;
  }
  // Some of them, in any order; whether there were any.
  bool make_copies() {
    const bool has_any = !copies_.empty();
    for (std::size_t left = copies_.size(); left > 0; --left) {
      if (random_() % 4 == 0) continue;
      std::swap(copies_[random_() % copies_.size()], copies_.front());
      const Copy copy = std::move(copies_.front());
      copies_.pop_front();
      std::memcpy(copy.to, copy.from, copy.bytes);
      copy.when_done();
    }
    return has_any;
  }

  const std::function<void()>& kernel_;
  std::vector<Fiber> fibers_;
  std::vector<WarpMeeting> warps_;
  BlockMeeting block_meeting_;
  std::deque<Copy> copies_;
  Fiber* current_ = nullptr;
  jmp_buf scheduler_{};
  std::size_t left_ = fibers_.size();
  bool has_yielded_ = false;
  Random random_{std::random_device{}()};
};

}  // namespace

const Indices& indices() { return this_block->current().indices; }

void run(unsigned blocks, unsigned threads, const std::function<void()>& kernel) {
  std::vector<std::jthread> running;
  for (unsigned i = 0; i < blocks; ++i)
    running.emplace_back([&, i] { Block(i, blocks, threads, kernel).run(); });
}

const std::uint64_t* meet_warp(std::uint64_t value) {
  Block& block = *this_block;
  WarpMeeting& meeting = block.warp_meeting();
  auto& values = meeting.coming();
  values[block.current().indices.thread.x % lanes] = value;
  block.await(meeting);
  return values.data();
}

bool meet_block(bool value) {
  Block& block = *this_block;
  BlockMeeting& meeting = block.block_meeting();
  bool& any = meeting.coming();
  any = any || value;
  block.await(meeting);
  return any;
}

void yield() { this_block->yield(); }

void before_polling(const void* at) {
  Fiber& fiber = this_block->current();
  const auto end = fiber.polled.begin() + static_cast<std::ptrdiff_t>(fiber.polls);
  if (fiber.polls == most_polled || std::find(fiber.polled.begin(), end, at) != end)
    this_block->yield();
  fiber.polled[fiber.polls++] = at;
}

void copy_later(void* to, const void* from, std::size_t bytes, std::function<void()> when_done) {
  this_block->add({to, from, bytes, std::move(when_done)});
}

}  // namespace unisono::emulated
