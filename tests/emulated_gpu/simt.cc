#include "simt.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "shared_variables.h"

namespace unisono::emulated {
namespace {

constexpr unsigned lanes = 32;
constexpr std::size_t stack_bytes = std::size_t{128} << 10;
// Passes over a warp's lanes before another warp's turn, at most.
constexpr int most_passes = 8;
// Turns of all warps before another block's, at most.
constexpr int most_turns = 8;
constexpr std::size_t most_polled = 64;

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

class Block;
Block* this_block = nullptr;

// A fiber runs one thread after another; making its context costs system calls.
struct Fiber {
  // Where it began, and where it is: the C library saves signal masks with the first, by a system
  // call.
  ucontext_t beginning;
  jmp_buf place;
  bool has_begun = false;
  std::unique_ptr<std::byte[]> stack{new std::byte[stack_bytes]};
  Indices indices;
  bool is_over = false;
  // Waits until that meeting's number is another.
  const std::uint64_t* meeting = nullptr;
  std::uint64_t number = 0;
  // Where it has polled; since the meeting before, from `section` on.
  std::array<const void*, most_polled> polled{};
  std::size_t polls = 0;
  std::size_t section = 0;
  std::deque<int> groups_of_stores;

  bool may_run() const { return !is_over && (meeting == nullptr || *meeting != number); }
};

// What blocks that are over have left for others. Never destroyed: kernels may run until the end.
template <class T>
class Pool {
 public:
  template <class Make>
  T take(const Make& make) {
    if (free_.empty()) return make();
    T one = std::move(free_.back());
    free_.pop_back();
    return one;
  }
  void give(T one) { free_.push_back(std::move(one)); }

 private:
  std::vector<T> free_;
};

struct Release {
  void operator()(std::byte* memory) const {
    ::operator delete(memory, std::align_val_t(shared_layout().alignment));
  }
};
using Variables = std::unique_ptr<std::byte, Release>;

Pool<std::unique_ptr<Fiber>>& fibers() {
  static auto* const all = new Pool<std::unique_ptr<Fiber>>;
  return *all;
}
Pool<Variables>& variables() {
  static auto* const all = new Pool<Variables>;
  return *all;
}

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
  std::function<void()> when_done;
};

class Block {
 public:
  Block(unsigned number, unsigned blocks, unsigned threads, const std::function<void()>& code)
      : code_(code), warps_((threads + lanes - 1) / lanes) {
    block_meeting_.expected = threads;
    variables_ = variables().take([] {
      const SharedLayout& layout = shared_layout();
      return Variables(static_cast<std::byte*>(
          ::operator new(layout.bytes, std::align_val_t(layout.alignment))));
    });
    for (unsigned i = 0; i < threads; ++i) {
      ++warps_[i / lanes].expected;
      fibers_.push_back(fibers().take([] { return std::make_unique<Fiber>(); }));
      Fiber& fiber = *fibers_.back();
      fiber.indices = {{i}, {number}, {threads}, {blocks}};
      fiber.is_over = false;
      fiber.meeting = nullptr;
      fiber.polls = fiber.section = 0;
      fiber.groups_of_stores.assign(1, 0);
      if (fiber.has_begun) continue;
      getcontext(&fiber.beginning);
      fiber.beginning.uc_stack.ss_sp = fiber.stack.get();
      fiber.beginning.uc_stack.ss_size = stack_bytes;
      fiber.beginning.uc_link = nullptr;
      makecontext(&fiber.beginning, &Block::begin, 0);
    }
    for (unsigned i = 0; i < warps_.size(); ++i) order_.push_back(i);
    left_ = threads;
  }
  ~Block() {
    // Fibers that are in the middle of a kernel cannot run another.
    for (auto& fiber : fibers_)
      if (fiber->is_over) fibers().give(std::move(fiber));
    variables().give(std::move(variables_));
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  Progress step(Random& random) {
    this_block = this;
    use_shared_variables(variables_.get());
    bool has_moved = false;
    bool goes_on = true;
    for (int turn = 0; turn < most_turns && goes_on && left_ > 0; ++turn) {
      goes_on = make_copies(random);
      std::shuffle(order_.begin(), order_.end(), random);
      for (const unsigned warp : order_) goes_on = run_warp(warp) || goes_on;
      has_moved = has_moved || goes_on;
    }
    this_block = nullptr;
    if (left_ == 0) return Progress::complete;
    return has_moved ? Progress::some : Progress::none;
  }

  Fiber& current() { return *current_; }
  WarpMeeting& warp_meeting() { return warps_[current_->indices.thread.x / lanes]; }
  BlockMeeting& block_meeting() { return block_meeting_; }
  // Until the meeting that the fiber has come to is over.
  template <class Value>
  void await(Meeting<Value>& meeting) {
    Fiber& fiber = *current_;
    fiber.meeting = &meeting.number;
    fiber.number = meeting.number;
    ++meeting.arrived;
    meeting.close_if_complete();
    switch_away();
    fiber.meeting = nullptr;
    if (fiber.polls == most_polled) fiber.polls = 0;
    fiber.section = fiber.polls;
  }
  void yield() {
    has_yielded_ = true;
    current_->polls = current_->section = 0;
    switch_away();
  }
  // The warp polls, with meetings between: it goes on until its lanes have met again.
  void end_turn_at_meeting() { polls_again_ = true; }
  void add(Copy copy) { copies_.push_back(std::move(copy)); }

 private:
  static void begin() {
    for (;;) {
      this_block->code_();
      this_block->end();
    }
  }
  void end() {
    current_->is_over = true;
    --left_;
    warp_meeting().leave();
    block_meeting_.leave();
    switch_away();
  }
  [[gnu::noinline]] void switch_away() {
    if (_setjmp(current_->place) == 0) _longjmp(scheduler_, 1);
  }
  [[gnu::noinline]] void switch_to(Fiber& fiber) {
    current_ = &fiber;
    if (_setjmp(scheduler_) != 0) return;
    if (fiber.has_begun) _longjmp(fiber.place, 1);
    fiber.has_begun = true;
    setcontext(&fiber.beginning);
  }
  // Whether it came further than to look once more at what it waits for. Who may run in a pass is
  // known before it: the last who comes to a meeting would otherwise let those lanes that are
  // behind it go on at once, and the others after them, perhaps after other warps.
  bool run_warp(unsigned warp) {
    const std::size_t first = std::size_t{warp} * lanes;
    const std::size_t end = std::min(first + lanes, fibers_.size());
    has_yielded_ = polls_again_ = false;
    for (int pass = 0; pass < most_passes; ++pass) {
      std::uint32_t ready = 0;
      for (std::size_t i = first; i < end; ++i)
        ready |= static_cast<std::uint32_t>(fibers_[i]->may_run()) << (i - first);
      if (ready == 0) return pass > 0;
      for (std::size_t i = first; i < end; ++i)
        if ((ready >> (i - first) & 1U) != 0) switch_to(*fibers_[i]);
      if (polls_again_) return false;
      if (has_yielded_) return pass > 0;
    }
    return true;
  }
  // Some of them, in any order; whether there were any.
  bool make_copies(Random& random) {
    const bool has_any = !copies_.empty();
    for (std::size_t left = copies_.size(); left > 0; --left) {
      if (random() % 4 == 0) continue;
      std::swap(copies_[random() % copies_.size()], copies_.front());
      const Copy copy = std::move(copies_.front());
      copies_.pop_front();
      std::memcpy(copy.to, copy.from, copy.bytes);
      copy.when_done();
    }
    return has_any;
  }

  const std::function<void()>& code_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<WarpMeeting> warps_;
  std::vector<unsigned> order_;
  BlockMeeting block_meeting_;
  Variables variables_;
  std::deque<Copy> copies_;
  Fiber* current_ = nullptr;
  jmp_buf scheduler_{};
  std::size_t left_ = 0;
  bool has_yielded_ = false;
  bool polls_again_ = false;
};

}  // namespace

class Kernel::Impl {
 public:
  Impl(unsigned blocks, unsigned threads, const std::function<void()>& code) : code_(code) {
    for (unsigned i = 0; i < blocks; ++i)
      blocks_.push_back(std::make_unique<Block>(i, blocks, threads, code_));
  }
  Progress step(Random& random) {
    if (blocks_.empty()) return Progress::complete;
    auto& block = blocks_[random() % blocks_.size()];
    const Progress progress = block->step(random);
    if (progress != Progress::complete) return progress;
    std::swap(block, blocks_.back());
    blocks_.pop_back();
    return blocks_.empty() ? Progress::complete : Progress::some;
  }

 private:
  std::function<void()> code_;
  std::vector<std::unique_ptr<Block>> blocks_;
};

Kernel::Kernel(unsigned blocks, unsigned threads, const std::function<void()>& code)
    : impl_(std::make_unique<Impl>(blocks, threads, code)) {}
Kernel::~Kernel() = default;
Progress Kernel::step(Random& random) { return impl_->step(random); }

const Indices& indices() { return this_block->current().indices; }

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

// A loop comes back to the first that it has polled since the last meeting, however many it polls.
void before_polling(const void* at) {
  Fiber& fiber = this_block->current();
  const auto begin = fiber.polled.begin();
  const auto section = begin + static_cast<std::ptrdiff_t>(fiber.section);
  const auto end = begin + static_cast<std::ptrdiff_t>(fiber.polls);
  if (std::find(section, end, at) != end)
    this_block->yield();
  else if (std::find(begin, section, at) != section)
    this_block->end_turn_at_meeting();
  if (fiber.polls < most_polled) fiber.polled[fiber.polls++] = at;
}

void copy_later(void* to, const void* from, std::size_t bytes, std::function<void()> when_done) {
  this_block->add({to, from, bytes, std::move(when_done)});
}

std::deque<int>& groups_of_stores() { return this_block->current().groups_of_stores; }

}  // namespace unisono::emulated
