#include "engine/host/short_run.h"

#include <algorithm>

#include "base/block_copy.h"
#include "base/short_copy.h"
#include "base/try.h"
#include "plan/walk.h"

namespace unisono::engine {

using plan::Operation;
using transport::SlotHeader;

void ShortRun::clear() {
  blocks_.clear();
  steps_.clear();
  dependencies_.clear();
  scaled_.clear();
  is_timed_ = false;
}

bool ShortRun::lay_out(const CallState& call, std::size_t max_steps) {
  clear();
  if (call.tiles != 1 || call.one_sided->has_partners()) return false;
  for (const ThreadBlockRun& run : call.blocks) {
    const plan::ThreadBlock& plan = run.plan();
    Block block{.plan = &plan,
                .first = steps_.size(),
                .end = 0,
                .at = 0,
                .send_fifo = run.send_fifo(),
                .recv_fifo = run.recv_fifo(),
                .sender = run.send_fifo() != nullptr ? run.send_fifo()->mapped() : nullptr,
                .receiver = run.recv_fifo() != nullptr ? run.recv_fifo()->mapped() : nullptr,
                .waits_for = Waiting::Kind::nothing};
    const bool is_mapped = (block.sender != nullptr || plan.send_peer < 0) &&
                           (block.receiver != nullptr || plan.recv_peer < 0);
    if (!is_mapped || !place(plan, call, max_steps)) {
      clear();
      return false;
    }
    block.end = steps_.size();
    blocks_.push_back(block);
  }
  return is_laid_out();
}

bool ShortRun::place(const plan::ThreadBlock& block, const CallState& call, std::size_t max_steps) {
  std::vector<Extent> extents;
  for (plan::StepCursor cursor(block.body); cursor.step() != nullptr; cursor.advance()) {
    const plan::Step& step = *cursor.step();
    Step placed{.operation = step.operation,
                .source_buffer = step.source.buffer,
                .destination_buffer = step.destination.buffer,
                .receives = plan::receives(step.operation),
                .sends = plan::sends(step.operation),
                .bytes = 0,
                .elements = 0,
                .source = 0,
                .destination = 0,
                .first_dependency = static_cast<std::uint32_t>(dependencies_.size()),
                .dependencies_end = 0};
    const auto place_one = [&](const plan::Location& location, std::ptrdiff_t& offset) {
      placed.bytes = call.memory.extents(location.buffer, location.index.at(cursor.loops()),
                                         step.count, 0, extents);
      if (!extents.empty()) offset = extents[0].data - call.memory.base(location.buffer);
      return extents.size() <= 1;
    };
    const bool has_message_or_copy =
        !plan::is_one_sided(step.operation) && step.operation != plan::Operation::barrier;
    if (steps_.size() == max_steps || !has_message_or_copy) return false;
    if (plan::reads_source(step.operation) && !place_one(step.source, placed.source)) return false;
    if (plan::writes_destination(step.operation) &&
        !place_one(step.destination, placed.destination))
      return false;
    if (placed.bytes >= call.least_offered_bytes) return false;
    const bool is_scaled = call.arithmetic.scales_input() && plan::reads_source(step.operation) &&
                           step.source.buffer == plan::Buffer::input;
    if (is_scaled) scaled_.resize(std::max(scaled_.size(), placed.bytes));
    is_timed_ |= placed.sends && placed.bytes >= transport::least_timed_bytes;
    placed.elements = placed.bytes / call.arithmetic.element_bytes();
    for (const plan::Dependency& dependency : step.after)
      dependencies_.push_back({static_cast<std::size_t>(dependency.thread_block),
                               static_cast<std::size_t>(dependency.steps.at(cursor.loops()))});
    placed.dependencies_end = static_cast<std::uint32_t>(dependencies_.size());
    steps_.push_back(placed);
  }
  return true;
}

void ShortRun::start(const CallState& call) {
  for (std::size_t buffer = 0; buffer < bases_.size(); ++buffer)
    bases_[buffer] = call.memory.base(static_cast<plan::Buffer>(buffer));
  reduce_ = call.arithmetic.function();
  arithmetic_ = &call.arithmetic;
  call_ = call.id;
  for (Block& block : blocks_) block.at = block.first;
}

ShortRun::Polled ShortRun::poll() {
  progressed_ = false;
  bool complete = true;
  for (Block& block : blocks_) {
    if (block.at == block.end) continue;
    const std::size_t before = block.at;
    if (!advance(block)) [[unlikely]]
      return Polled::failed;
    progressed_ |= block.at != before;
    complete &= block.at == block.end;
  }
  if (!complete) return Polled::waiting;
  if (is_timed_) end_flight();
  return Polled::complete;
}

void ShortRun::settle() {
  if (!is_timed_) return;
  for (const Block& block : blocks_)
    if (block.send_fifo != nullptr) block.send_fifo->settle();
}

void ShortRun::end_flight() {
  for (const Block& block : blocks_)
    if (block.send_fifo != nullptr) block.send_fifo->end_call();
}

inline bool ShortRun::dependencies_met(const Step& step) const {
  for (std::uint32_t i = step.first_dependency; i < step.dependencies_end; ++i) {
    const Block& other = blocks_[dependencies_[i].block];
    if (other.at - other.first < dependencies_[i].steps) return false;
  }
  return true;
}

inline bool ShortRun::advance(Block& block) {
  for (; block.at < block.end; ++block.at) {
    const Step& step = steps_[block.at];
    if (!dependencies_met(step)) {
      block.waits_for = Waiting::Kind::dependency;
      return true;
    }
    if (step.bytes == 0) continue;
    if (step.sends && !block.sender->knows_room(step.bytes) && !finds_room(block, step)) {
      block.waits_for = Waiting::Kind::credit;
      return failure_.ok();
    }
    // Last, for a message that is taken is used.
    const std::byte* message = nullptr;
    if (step.receives) {
      message = take(block, step);
      if (message == nullptr) {
        block.waits_for = Waiting::Kind::message;
        return failure_.ok();
      }
    }
    execute(block, step, message);
  }
  block.waits_for = Waiting::Kind::nothing;
  return true;
}

bool ShortRun::finds_room(Block& block, const Step& step) {
  auto is_free = block.sender->look_for_room(step.bytes);
  if (is_free.ok()) return *is_free;
  failure_ = is_free.take_error();
  return false;
}

inline const std::byte* ShortRun::take(Block& block, const Step& step) {
  transport::MappedReceiver& receiver = *block.receiver;
  const std::uint64_t number = receiver.number();
  if (number <= receiver.taken()) return nullptr;
  if (number == receiver.taken() + 1 && receiver.carries(step.bytes, call_)) [[likely]]
    return receiver.payload(step.bytes);
  auto offered = take_offered(block, step);
  if (offered.ok()) return *offered;
  failure_ = offered.take_error();
  return nullptr;
}

Result<const std::byte*> ShortRun::take_offered(Block& block, const Step& step) {
  block.recv_fifo->set_call(call_);
  UNISONO_ASSIGN(const bool arrived, block.recv_fifo->arrived(step.bytes));
  if (!arrived) return nullptr;
  offered_.resize(step.bytes);
  UNISONO_TRY(block.recv_fifo->copy_to(offered_.data(), 0, step.bytes));
  UNISONO_TRY(block.recv_fifo->release());
  return offered_.data();
}

inline void ShortRun::combine(std::byte* destination, const std::byte* a, const std::byte* b,
                              const Step& step) {
  arithmetic_->meter().measure(step.bytes, [&] { reduce_(destination, a, b, step.elements); });
}

inline const std::byte* ShortRun::contribution(const Step& step) {
  if (scaled_.empty() || step.source_buffer != plan::Buffer::input) return source(step);
  arithmetic_->scale(scaled_.data(), source(step), step.bytes);
  return scaled_.data();
}

inline void ShortRun::copy(const Step& step) {
  const std::byte* const from = contribution(step);
  if (from != destination(step)) block_copy(destination(step), from, step.bytes);
}

inline void ShortRun::execute(Block& block, const Step& step, const std::byte* message) {
  const std::size_t bytes = step.bytes;
  std::byte* const slot = step.sends ? block.sender->payload(bytes) : nullptr;
  switch (step.operation) {
    case Operation::send:
      block.sender->fill(slot, contribution(step), bytes);
      break;
    case Operation::copy:
      copy(step);
      break;
    case Operation::reduce:
      combine(destination(step), destination(step), contribution(step), step);
      break;
    case Operation::copy_send:
      copy(step);
      block.sender->fill(slot, destination(step), bytes);
      break;
    case Operation::recv:
      short_copy(destination(step), message, bytes);
      break;
    case Operation::recv_copy_send:
      short_copy(destination(step), message, bytes);
      block.sender->fill(slot, message, bytes);
      break;
    case Operation::recv_reduce_copy:
      combine(destination(step), message, contribution(step), step);
      break;
    case Operation::recv_reduce_send:
      combine(slot, message, contribution(step), step);
      break;
    default:  // recv_reduce_copy_send: limits() leaves no other
      combine(destination(step), message, contribution(step), step);
      block.sender->fill(slot, destination(step), bytes);
      break;
  }
  if (step.receives && message != offered_.data())
    block.receiver->release(SlotHeader::Kind::bytes, bytes);
  if (step.sends) block.sender->publish(SlotHeader::Kind::bytes, bytes, 0, call_);
}

std::vector<Waiting> ShortRun::waits() const {
  std::vector<Waiting> out;
  for (const Block& block : blocks_) {
    const bool waits_outside = block.at != block.end && block.waits_for != Waiting::Kind::nothing &&
                               block.waits_for != Waiting::Kind::dependency;
    if (!waits_outside) continue;
    const bool awaits_message = block.waits_for == Waiting::Kind::message;
    out.push_back(
        {.kind = block.waits_for,
         .peer = awaits_message ? block.plan->recv_peer : block.plan->send_peer,
         .channel = block.plan->channel,
         .thread_block = static_cast<int>(&block - blocks_.data()),
         .step = static_cast<std::int64_t>(block.at - block.first),
         .tile = 0,
         .expected = (awaits_message ? block.recv_fifo->received() : block.send_fifo->sent()) + 1,
         .got = awaits_message ? block.recv_fifo->received() : block.send_fifo->consumed()});
  }
  return out;
}

bool ShortRun::awaits(int peer) const {
  return std::ranges::any_of(blocks_, [&](const Block& block) {
    if (block.at == block.end) return false;
    return (block.waits_for == Waiting::Kind::message && block.plan->recv_peer == peer) ||
           (block.waits_for == Waiting::Kind::credit && block.plan->send_peer == peer);
  });
}

std::size_t ShortRun::memory_bytes() const {
  return blocks_.capacity() * sizeof(Block) + steps_.capacity() * sizeof(Step) +
         dependencies_.capacity() * sizeof(Dependency) + offered_.capacity() + scaled_.capacity();
}

}  // namespace unisono::engine
