// Scheduling: the order of the instructions in each thread block.
//
// Assumes: instructions with thread blocks, numbered so that each needs only earlier ones.
// Establishes: an order in every thread block in which the program comes to its end, with `slots`
// messages on a connection, also where messages are read from the sender's memory. Both ends of a
// connection have its messages in one order.
//
// The program is executed in rounds of equal length. In each, every thread block that can go on
// takes one instruction: the one with the greatest depth + reverse depth, which is the length of
// the longest chain through it, and among equals the one that the program wrote first. A send that
// begins a chain leaves one slot free where the thread block also passes messages on: a ring whose
// slots were all taken by such sends could not move (bubble flow control).
//
// Where the program's order is to be kept, every connection has its messages in that order. That
// always ends: the first instruction of the program that is not done can go on, because what is
// before it in its connections is done too.
//
// Where that gets stuck, it says so and takes the order of the program. That always ends when
// nothing is fused: then every recv stands right behind its send, and one slot is enough. With
// something fused, the compiler begins anew without.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "compile/passes.h"

namespace unisono::compile {
namespace {

constexpr int most_slots = 8;

bool sends_from_memory(plan::Operation operation) {
  return plan::sends(operation) && operation != plan::Operation::recv_reduce_send;
}

class Scheduler {
 public:
  explicit Scheduler(Module& module)
      : module_(module),
        count_(module.instruction_count()),
        slots_(std::clamp(module.options.slots, 1, most_slots)),
        waits_for_(count_),
        first_next_(count_ + 1),
        lanes_(module.blocks.size()) {
    connect();
    if (module.options.keep_order) list_sends();
    find_successors();
    find_priorities();
  }

  // False if it got stuck.
  bool run() {
    module_.sequence.clear();
    module_.sequence.reserve(count_);
    for (Block& block : module_.blocks) block.order.clear();
    for (std::size_t i = 0; i < count_; ++i)
      if (waits_for_[i] == 0) make_ready(static_cast<std::int32_t>(i));
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) wake(static_cast<std::int32_t>(lane));
    std::vector<std::int32_t> active;
    std::vector<std::int32_t> taken;
    while (!woken_.empty()) {
      active.swap(woken_);
      woken_.clear();
      for (const std::int32_t lane : active) lanes_[at(lane)].is_awake = false;
      taken.clear();
      for (const std::int32_t lane : active)
        if (const std::int32_t best = choose(lanes_[at(lane)]); best != none) taken.push_back(best);
      for (const std::int32_t instruction : taken) complete(instruction);
    }
    return module_.sequence.size() == count_;
  }

 private:
  struct Lane {
    std::int32_t in = none;  // connections
    std::int32_t out = none;
    bool passes_on = false;
    bool is_awake = false;
    std::vector<std::int32_t> sends;  // heaps of instructions that are ready and receive nothing
    std::vector<std::int32_t> locals;
    std::vector<std::int32_t> in_order;  // where the order is kept: what sends, from the last on
  };
  struct Connection {
    std::int32_t sender = none;  // lanes
    std::int32_t receiver = none;
    int waiting = 0;
    int first = 0;
    std::array<std::int32_t, most_slots> messages{};  // the receiving instructions
    bool is_full(int slots) const { return waiting >= slots; }
    std::int32_t front() const { return messages[at(first)]; }
  };

  const Instruction& it(std::int32_t i) const { return module_.instructions[at(i)]; }

  void connect() {
    for (std::size_t i = 0; i < count_; ++i) {
      const Instruction& one = module_.instructions[i];
      if (one.recv_peer != none && one.send_peer != none) lanes_[at(one.block)].passes_on = true;
      if (one.receiver == none) continue;
      Lane& from = lanes_[at(one.block)];
      Lane& to = lanes_[at(it(one.receiver).block)];
      if (from.out != none) continue;
      from.out = to.in = static_cast<std::int32_t>(connections_.size());
      connections_.push_back({.sender = one.block, .receiver = it(one.receiver).block});
    }
  }

  void list_sends() {
    for (std::size_t i = count_; i-- > 0;)
      if (module_.instructions[i].receiver != none)
        lanes_[at(module_.instructions[i].block)].in_order.push_back(static_cast<std::int32_t>(i));
  }

  // Whether an instruction that sends may come before the lane's other ones.
  bool is_next(const Lane& lane, std::int32_t instruction) const {
    return lane.in_order.empty() || lane.in_order.back() == instruction;
  }

  // Calls visit(earlier) for each instruction that must be done before `i`, messages aside.
  template <class Visit>
  void for_each_need(std::size_t i, Visit visit) const {
    for (const Need& need : module_.needs_of(i)) {
      visit(need.instruction);
      // Read from the sender's memory, the message must have been taken.
      const Instruction& other = it(need.instruction);
      if (need.is_overwrite && sends_from_memory(other.operation) &&
          other.receiver != static_cast<std::int32_t>(i))
        visit(other.receiver);
    }
  }

  void find_successors() {
    for (std::size_t i = 0; i < count_; ++i)
      for_each_need(i, [&](std::int32_t earlier) {
        ++waits_for_[i];
        ++first_next_[at(earlier) + 1];
      });
    for (std::size_t i = 0; i < count_; ++i) first_next_[i + 1] += first_next_[i];
    next_.resize(at(first_next_[count_]));
    std::vector<std::int32_t> fill(first_next_.begin(), first_next_.end() - 1);
    for (std::size_t i = 0; i < count_; ++i)
      for_each_need(i, [&](std::int32_t earlier) {
        next_[at(fill[at(earlier)]++)] = static_cast<std::int32_t>(i);
      });
  }

  void find_priorities() {
    priority_.resize(count_);
    if (module_.options.keep_order) return;
    std::vector<std::int32_t> reverse_depth(count_);
    std::vector<std::int32_t> depth(count_);
    for (std::size_t i = count_; i-- > 0;) {
      const auto raise = [&](std::int32_t earlier) {
        reverse_depth[at(earlier)] = std::max(reverse_depth[at(earlier)], reverse_depth[i] + 1);
      };
      for_each_need(i, raise);
      if (it(static_cast<std::int32_t>(i)).sender != none) raise(module_.instructions[i].sender);
    }
    for (std::size_t i = 0; i < count_; ++i) {
      const auto raise = [&](std::int32_t earlier) {
        depth[i] = std::max(depth[i], depth[at(earlier)] + 1);
      };
      for_each_need(i, raise);
      if (module_.instructions[i].sender != none) raise(module_.instructions[i].sender);
    }
    for (std::size_t i = 0; i < count_; ++i) priority_[i] = depth[i] + reverse_depth[i];
  }

  bool comes_first(std::int32_t a, std::int32_t b) const {
    const std::int32_t left = priority_[at(a)];
    const std::int32_t right = priority_[at(b)];
    return left != right ? left > right : a < b;
  }
  auto heap_order() const {
    return [this](std::int32_t a, std::int32_t b) { return comes_first(b, a); };
  }

  void wake(std::int32_t lane) {
    if (lanes_[at(lane)].is_awake) return;
    lanes_[at(lane)].is_awake = true;
    woken_.push_back(lane);
  }

  // All that it needs on its rank is done.
  void make_ready(std::int32_t instruction) {
    const Instruction& one = it(instruction);
    Lane& lane = lanes_[at(one.block)];
    if (one.sender == none) {
      std::vector<std::int32_t>& heap = one.receiver != none ? lane.sends : lane.locals;
      heap.push_back(instruction);
      std::ranges::push_heap(heap, heap_order());
    }
    wake(one.block);
  }

  std::int32_t choose(Lane& lane) {
    std::int32_t best = none;
    std::vector<std::int32_t>* heap = nullptr;
    if (lane.in != none && connections_[at(lane.in)].waiting > 0) {
      const std::int32_t front = connections_[at(lane.in)].front();
      const bool blocked = it(front).receiver != none &&
                           (connections_[at(lane.out)].is_full(slots_) || !is_next(lane, front));
      if (waits_for_[at(front)] == 0 && !blocked) best = front;
    }
    if (!lane.locals.empty() && (best == none || comes_first(lane.locals.front(), best))) {
      best = lane.locals.front();
      heap = &lane.locals;
    }
    const int reserved = lane.passes_on && slots_ > 1 ? 1 : 0;
    if (!lane.sends.empty() && is_next(lane, lane.sends.front()) &&
        !connections_[at(lane.out)].is_full(slots_ - reserved) &&
        (best == none || comes_first(lane.sends.front(), best))) {
      best = lane.sends.front();
      heap = &lane.sends;
    }
    if (heap != nullptr) {
      std::ranges::pop_heap(*heap, heap_order());
      heap->pop_back();
    }
    return best;
  }

  void complete(std::int32_t instruction) {
    const Instruction& one = it(instruction);
    module_.blocks[at(one.block)].order.push_back(instruction);
    module_.sequence.push_back(instruction);
    Lane& lane = lanes_[at(one.block)];
    if (one.sender != none) {
      Connection& in = connections_[at(lane.in)];
      in.first = (in.first + 1) % most_slots;
      --in.waiting;
      wake(in.sender);
    }
    if (one.receiver != none) {
      if (!lane.in_order.empty()) lane.in_order.pop_back();
      Connection& out = connections_[at(lane.out)];
      out.messages[at((out.first + out.waiting++) % most_slots)] = one.receiver;
      wake(out.receiver);
    }
    for (std::int32_t i = first_next_[at(instruction)]; i < first_next_[at(instruction) + 1]; ++i)
      if (--waits_for_[at(next_[at(i)])] == 0) make_ready(next_[at(i)]);
    wake(one.block);
  }

  Module& module_;
  std::size_t count_;
  int slots_;
  std::vector<std::int32_t> waits_for_;   // by instruction: how many must still come before it
  std::vector<std::int32_t> first_next_;  // by instruction, in next_
  std::vector<std::int32_t> next_;
  std::vector<std::int32_t> priority_;
  std::vector<Lane> lanes_;
  std::vector<Connection> connections_;
  std::vector<std::int32_t> woken_;
};

}  // namespace

Status schedule(Module& module) {
  if (Scheduler(module).run()) return {};
  module.is_stuck = true;
  for (Block& block : module.blocks) block.order.clear();
  module.sequence.clear();
  for (std::size_t i = 0; i < module.instruction_count(); ++i) {
    module.sequence.push_back(static_cast<std::int32_t>(i));
    module.blocks[at(module.instructions[i].block)].order.push_back(static_cast<std::int32_t>(i));
  }
  return {};
}

}  // namespace unisono::compile
