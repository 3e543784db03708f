// Steps of a thread block that send no data: one-sided ones, and barriers.
#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "base/try.h"
#include "engine/host/thread_block.h"

namespace unisono::engine {

using plan::Operation;

Result<bool> ThreadBlockRun::try_without_message(CallState& call, const plan::Step& step) {
  switch (step.operation) {
    case Operation::barrier:
      return pass_barrier(call);
    case Operation::signal:
      return signal(call, step);
    case Operation::wait:
      return await_signal(call, step);
    case Operation::put:
      return put(call, step);
    default:
      return read_reduce(call, step);
  }
}

// Barriers of a thread block are numbered on through all tiles.
bool ThreadBlockRun::pass_barrier(CallState& call) {
  is_at_barrier_ = true;
  const auto is_behind = [this](const ThreadBlockRun& other) {
    return other.barriers_ + (other.is_at_barrier_ ? 1 : 0) <= barriers_;
  };
  if (std::ranges::any_of(call.blocks, is_behind)) return block_on(Waiting::Kind::dependency);
  is_at_barrier_ = false;
  ++barriers_;
  return true;
}

// A token is a message that says which puts came before it.
Result<bool> ThreadBlockRun::signal(CallState& call, const plan::Step& step) {
  UNISONO_ASSIGN(const bool ready, connected(call, step));
  if (!ready) return false;
  UNISONO_ASSIGN(const bool slot_free, send_->can_send());
  if (!slot_free)
    return block_on(Waiting::Kind::credit, send_->sent() + 1, send_->consumed(), block_->send_peer);
  const PutCounts puts = call.one_sided->puts_to(block_->send_peer);
  // Release: the protocol's own stores order what they carry, and here it is other memory that must
  // be seen by the rank that takes the token.
  std::atomic_thread_fence(std::memory_order_release);
  pieces_.assign(1, {&puts, sizeof puts});
  UNISONO_TRY(send_->send(pieces_));
  return true;
}

Result<bool> ThreadBlockRun::await_signal(CallState& call, const plan::Step& step) {
  UNISONO_ASSIGN(const bool ready, connected(call, step));
  if (!ready) return false;
  PutCounts puts;
  UNISONO_ASSIGN(const bool arrived, recv_->arrived(sizeof puts));
  const int peer = block_->recv_peer;
  if (!arrived)
    return block_on(Waiting::Kind::message, recv_->received() + 1, recv_->received(), peer);
  UNISONO_TRY(recv_->copy_to(&puts, 0, sizeof puts));
  const PutCounts there = call.one_sided->puts_from(peer);
  if (there.staged < puts.staged)
    return block_on(Waiting::Kind::message, puts.staged, there.staged, peer);
  if (there.in_place < puts.in_place)
    return block_on(Waiting::Kind::message, puts.in_place, there.in_place, peer);
  // Acquire: pairs with the fence of signal().
  std::atomic_thread_fence(std::memory_order_acquire);
  UNISONO_TRY(recv_->release());
  return true;
}

RemotePart ThreadBlockRun::remote_part(const plan::Location& location, int count) const {
  return {.buffer = location.buffer,
          .count = count,
          .chunk = location.index.at(cursor_.loops()),
          .tile = tile_,
          .bytes = bytes_};
}

Result<bool> ThreadBlockRun::put(CallState& call, const plan::Step& step) {
  bytes_ = call.memory.extents(step.source.buffer, step.source.index.at(cursor_.loops()),
                               step.count, tile_, source_);
  if (bytes_ == 0) return true;
  const int peer = block_->send_peer;
  if (!call.one_sided->has_entered(peer)) return block_on(Waiting::Kind::entry, 0, 0, peer);
  const bool raw = step.source.buffer == plan::Buffer::input;
  UNISONO_ASSIGN(const bool done,
                 call.one_sided->put(call, peer, remote_part(step.destination, step.count), source_,
                                     raw, remote_));
  if (!done) return block_on(Waiting::Kind::credit, 0, 0, peer);
  remote_ = {};
  return true;
}

Result<bool> ThreadBlockRun::read_reduce(CallState& call, const plan::Step& step) {
  bytes_ = call.memory.extents(step.destination.buffer, step.destination.index.at(cursor_.loops()),
                               step.count, tile_, destination_);
  if (bytes_ == 0) return true;
  while (peers_read_ < step.peers.size()) {
    const int peer = step.peers[peers_read_];
    if (!call.one_sided->has_entered(peer)) return block_on(Waiting::Kind::entry, 0, 0, peer);
    UNISONO_ASSIGN(const bool done,
                   call.one_sided->read_reduce(call, peer, remote_part(step.source, step.count),
                                               index_, destination_, remote_));
    if (!done) return block_on(Waiting::Kind::message, 0, 0, peer);
    remote_ = {};
    ++peers_read_;
  }
  peers_read_ = 0;
  return true;
}

}  // namespace unisono::engine
