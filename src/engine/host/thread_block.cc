#include "engine/host/thread_block.h"

#include "base/error.h"
#include "base/stream_copy.h"
#include "base/try.h"

namespace unisono::engine {

using plan::Operation;

ThreadBlockRun::ThreadBlockRun(const plan::ThreadBlock& block, int index)
    : block_(&block), index_(index), cursor_(block.body) {}

void ThreadBlockRun::start(const CallId& call) {
  tile_ = 0;
  cursor_ = plan::StepCursor(block_->body);
  offers_.clear();
  first_offer_ = 0;
  is_exposed_ = false;
  first_sent_ = no_message;
  remote_ = {};
  peers_read_ = 0;
  barriers_ = 0;
  is_at_barrier_ = false;
  waiting_ = {};
  set_call(call);
}

Result<bool> ThreadBlockRun::advance(CallState& call) {
  bool moved = false;
  while (tile_ < call.tiles) {
    if (cursor_.step() == nullptr) {
      // The next tile's dependencies must see this one as complete before its own steps start.
      ++tile_;
      cursor_ = plan::StepCursor(block_->body);
      moved = true;
      continue;
    }
    UNISONO_ASSIGN(const bool completed, try_step(call));
    if (!completed) {
      UNISONO_TRY(push());
      return moved;
    }
    cursor_.advance();
    moved = true;
  }
  waiting_ = {};
  return moved;
}

Status ThreadBlockRun::push() {
  if (send_ == nullptr) return {};
  send_->settle();
  if (send_->has_pending()) UNISONO_TRY(send_->flush());
  return {};
}

Result<bool> ThreadBlockRun::finished(CallState& call) {
  if (!done(call)) return false;
  if (send_ != nullptr) {
    UNISONO_ASSIGN(const bool flushed, send_->flush());
    if (!flushed) return block_on(Waiting::Kind::connection, 0, 0, block_->send_peer);
  }
  if (recv_ != nullptr) {
    recv_->withdraw();  // all that comes here has arrived
    UNISONO_ASSIGN(const bool flushed, recv_->flush());
    if (!flushed) return block_on(Waiting::Kind::connection, 0, 0, block_->recv_peer);
  }
  retire_offers();
  if (!has_offers()) {
    if (send_ != nullptr) send_->end_call();
    waiting_ = {};  // what it waited for before must not be told, nor looked for, any more
    return true;
  }
  return block_on(Waiting::Kind::consumption, offers_.back().message + 1, send_->sources_read(),
                  block_->send_peer);
}

bool ThreadBlockRun::awaits_event() const {
  switch (waiting_.kind) {
    case Waiting::Kind::message:
      return recv_->has_events();
    case Waiting::Kind::credit:
      return send_->has_events();
    case Waiting::Kind::consumption:  // of what any thread block has offered
      return send_ == nullptr || send_->has_events();
    case Waiting::Kind::connection:
      return true;
    default:
      return false;
  }
}

bool ThreadBlockRun::awaits_memory() const {
  switch (waiting_.kind) {
    case Waiting::Kind::nothing:
    case Waiting::Kind::dependency:  // of a thread block that waits itself
      return false;
    case Waiting::Kind::message:
      return !recv_->has_events();
    case Waiting::Kind::credit:
    case Waiting::Kind::destination:
    case Waiting::Kind::consumption:
      return send_ == nullptr || !send_->has_events();
    default:
      return true;
  }
}

bool ThreadBlockRun::block_on(Waiting::Kind kind, std::uint64_t expected, std::uint64_t got,
                              int peer) {
  waiting_ = {.kind = kind,
              .peer = peer,
              .channel = block_->channel,
              .thread_block = index_,
              .step = cursor_.number(),
              .tile = tile_,
              .expected = expected,
              .got = got};
  return false;
}

bool ThreadBlockRun::dependencies_met(const CallState& call, const plan::Step& step) {
  for (const plan::Dependency& dependency : step.after) {
    const std::int64_t steps = dependency.steps.at(cursor_.loops());
    const ThreadBlockRun& other = call.blocks[static_cast<std::size_t>(dependency.thread_block)];
    if (!other.has_completed(tile_, steps)) {
      const bool same_tile = other.tile_ == tile_;
      return block_on(Waiting::Kind::dependency, static_cast<std::uint64_t>(steps),
                      same_tile ? static_cast<std::uint64_t>(other.cursor_.number()) : 0);
    }
  }
  return true;
}

Status ThreadBlockRun::join_connections(CallState& call) {
  const Protocol protocol = call.header->protocol;
  if (block_->recv_peer >= 0 && recv_ == nullptr) {
    UNISONO_ASSIGN(recv_, call.resources->recv_fifo(block_->recv_peer, block_->channel, protocol));
  }
  if (block_->send_peer >= 0 && send_ == nullptr) {
    UNISONO_ASSIGN(send_, call.resources->send_fifo(block_->send_peer, block_->channel, protocol));
  }
  set_call(call.id);
  return {};
}

Result<bool> ThreadBlockRun::connected(CallState& call, const plan::Step& step) {
  const bool lacks_recv = plan::receives(step.operation) && recv_ == nullptr;
  const bool lacks_send = plan::sends(step.operation) && send_ == nullptr;
  if (!lacks_recv && !lacks_send) return true;
  UNISONO_TRY(join_connections(call));
  if (lacks_recv && recv_ == nullptr)
    return block_on(Waiting::Kind::connection, 0, 0, block_->recv_peer);
  if (lacks_send && send_ == nullptr)
    return block_on(Waiting::Kind::connection, 0, 0, block_->send_peer);
  return true;
}

void ThreadBlockRun::set_call(const CallId& call) {
  if (recv_ != nullptr) recv_->set_call(call);
  if (send_ != nullptr) send_->set_call(call);
}

Result<bool> ThreadBlockRun::try_step(CallState& call) {
  const plan::Step& step = *cursor_.step();
  if (!dependencies_met(call, step)) return false;
  if (plan::is_one_sided(step.operation) || step.operation == Operation::barrier)
    return try_without_message(call, step);
  bytes_ = 0;
  if (plan::reads_source(step.operation))
    bytes_ = call.memory.extents(step.source.buffer, step.source.index.at(cursor_.loops()),
                                 step.count, tile_, source_);
  if (plan::writes_destination(step.operation))
    bytes_ =
        call.memory.extents(step.destination.buffer, step.destination.index.at(cursor_.loops()),
                            step.count, tile_, destination_);
  if (bytes_ == 0) return true;
  UNISONO_ASSIGN(const bool ready, connected(call, step));
  if (!ready) return false;
  if (call.memory.has_messages()) {
    const plan::Location& block = plan::sends(step.operation) ? step.source : step.destination;
    set_call({.what = call.memory.fingerprint(block.buffer, block.index.at(cursor_.loops()))});
  }
  if (plan::receives(step.operation)) {
    if (!is_exposed_) UNISONO_TRY(expose_output(call));
    UNISONO_ASSIGN(const bool arrived, recv_->arrived(bytes_));
    if (!arrived)
      return block_on(Waiting::Kind::message, recv_->received() + 1, recv_->received(),
                      block_->recv_peer);
  }
  if (plan::sends(step.operation)) {
    if (first_sent_ == no_message) first_sent_ = send_->sent();
    UNISONO_ASSIGN(const bool slot_free, send_->can_send());
    if (!slot_free)
      return block_on(Waiting::Kind::credit, send_->sent() + 1, send_->consumed(),
                      block_->send_peer);
  }
  if (plan::writes_destination(step.operation) && !destination_free(call)) return false;
  UNISONO_TRY(execute(call, step));
  return true;
}

// A destination that a peer still reads by zero-copy must not be overwritten.
bool ThreadBlockRun::destination_free(CallState& call) {
  for (ThreadBlockRun& other : call.blocks) {
    if (other.has_offers() && other.offers(destination_))
      return block_on(Waiting::Kind::consumption, other.offers_.back().message + 1,
                      other.send_->sources_read(), other.block_->send_peer);
  }
  return true;
}

bool ThreadBlockRun::offers(const std::vector<Extent>& destination) {
  retire_offers();
  for (std::size_t i = first_offer_; i < offers_.size(); ++i)
    for (const Extent& extent : destination)
      if (extent.data < offers_[i].end && offers_[i].begin < extent.data + extent.bytes)
        return true;
  return false;
}

void ThreadBlockRun::retire_offers() {
  if (!has_offers()) return;
  const std::uint64_t read = send_->sources_read();
  while (has_offers() && offers_[first_offer_].message < read) ++first_offer_;
  if (has_offers()) return;
  offers_.clear();
  first_offer_ = 0;
}

Status ThreadBlockRun::execute(CallState& call, const plan::Step& step) {
  const bool raw = step.source.buffer == plan::Buffer::input;
  switch (step.operation) {
    case Operation::send:
      return send_extents(call, source_, raw);
    case Operation::copy:
      call.arithmetic.copy(source_, destination_, raw);
      return {};
    case Operation::reduce:
      call.arithmetic.reduce(source_, destination_, raw);
      return {};
    case Operation::copy_send:
      call.arithmetic.copy(source_, destination_, raw);
      // What was streamed is not at hand, its source is.
      return call.arithmetic.streams_output() ? send_extents(call, source_, raw)
                                              : send_extents(call, destination_, false);
    default:
      return execute_receive(call, step);
  }
}

Status ThreadBlockRun::execute_receive(CallState& call, const plan::Step& step) {
  const bool raw = step.source.buffer == plan::Buffer::input;
  switch (step.operation) {
    case Operation::recv:
      UNISONO_TRY(receive_into_destination(call));
      return recv_->release();
    case Operation::recv_copy_send:
      return receive_copy_send(call);
    case Operation::recv_reduce_copy:
      UNISONO_TRY(call.arithmetic.reduce_message(*recv_, source_, destination_, raw));
      return recv_->release();
    case Operation::recv_reduce_copy_send:
      UNISONO_TRY(call.arithmetic.reduce_message(*recv_, source_, destination_, raw));
      UNISONO_TRY(recv_->release());
      return send_extents(call, destination_, false);
    case Operation::recv_reduce_send:
      UNISONO_TRY(receive_reduce_send(call, raw));
      return recv_->release();
    default:
      return bug("the host engine was given operation ", plan::name(step.operation),
                 ", which its limits() exclude");
  }
}

Status ThreadBlockRun::receive_into_destination(const CallState& call) {
  if (recv_->is_direct() && cursor_.step()->destination.buffer == plan::Buffer::output) return {};
  const auto* message = static_cast<const std::byte*>(recv_->data());
  const bool streams = call.arithmetic.streams_output() && message != nullptr;
  std::size_t offset = 0;
  for (const Extent& extent : destination_) {
    if (streams)
      stream_copy(extent.data, message + offset, extent.bytes);
    else
      UNISONO_TRY(recv_->copy_to(extent.data, offset, extent.bytes));
    offset += extent.bytes;
  }
  return {};
}

Status ThreadBlockRun::receive_copy_send(CallState& call) {
  UNISONO_TRY(receive_into_destination(call));
  const void* message = recv_->data();
  if (call.arithmetic.streams_output() && message != nullptr) {
    // What was streamed is not at hand, the message is.
    pieces_.assign(1, {message, bytes_});
    UNISONO_TRY(send_->send(pieces_));
    return recv_->release();
  }
  UNISONO_TRY(recv_->release());
  return send_extents(call, destination_, false);
}

Status ThreadBlockRun::receive_reduce_send(CallState& call, bool raw) {
  UNISONO_ASSIGN(void* const slot, send_->begin(bytes_));
  destination_.assign(1, {static_cast<std::byte*>(slot), bytes_});
  UNISONO_TRY(call.arithmetic.reduce_message(*recv_, source_, destination_, raw));
  return send_->commit();
}

Status ThreadBlockRun::send_extents(CallState& call, const std::vector<Extent>& extents, bool raw) {
  if (raw && call.arithmetic.scales_input()) {
    UNISONO_ASSIGN(void* const slot, send_->begin(bytes_));
    call.arithmetic.scale_into(extents, static_cast<std::byte*>(slot));
    return send_->commit();
  }
  UNISONO_ASSIGN(const bool is_sent, send_directly(call, extents));
  if (is_sent) return {};
  pieces_.clear();
  for (const Extent& extent : extents) pieces_.push_back({extent.data, extent.bytes});
  // What a peer still reads, another could overwrite with a put that is in order otherwise.
  if (call.one_sided->has_partners() || !send_->offers_zero_copy(pieces_))
    return send_->send(pieces_);
  offer(extents);
  return send_->offer(pieces_);
}

void ThreadBlockRun::offer(const std::vector<Extent>& extents) {
  for (const Extent& extent : extents)
    offers_.push_back({send_->sent(), extent.data, extent.data + extent.bytes});
}

}  // namespace unisono::engine
