#include "engine/gpu/stream_queue.h"

#include <utility>

#include "base/str.h"
#include "base/try.h"
#include "transport/nvlink/layout.h"

namespace unisono::engine::gpu {
namespace {

using sys::cuda::DeviceAddress;
using sys::cuda::MemoryOperation;
using trace::Waiting;

// A fork takes five calls of the driver, some microseconds.
constexpr std::size_t worth_a_fork_bytes = 1 << 20;

// Flags of an end, by slot: what has arrived there, then what is free for it at the peer. Then, in
// turn: what the peer wants, and what it has stored.
DeviceAddress arrived_flag(DeviceAddress signals, std::uint64_t slot) {
  return signals + slot * sizeof(std::uint64_t);
}
DeviceAddress free_flag(DeviceAddress signals, int slots, std::uint64_t slot) {
  return signals + (static_cast<std::uint64_t>(slots) + slot) * sizeof(std::uint64_t);
}
DeviceAddress wanted_flag(DeviceAddress signals, int slots, std::uint64_t message) {
  const std::uint64_t turn = message % CopyLinks::zero_copy_flags;
  return signals + (2 * static_cast<std::uint64_t>(slots) + turn) * sizeof(std::uint64_t);
}
DeviceAddress stored_flag(DeviceAddress signals, int slots, std::uint64_t part) {
  return wanted_flag(signals, slots, part) + CopyLinks::zero_copy_flags * sizeof(std::uint64_t);
}
DeviceAddress own_signals(const CopyLink& link) { return link.connection->device_link()->signals; }
DeviceAddress peer_signals(const CopyLink& link) {
  return link.connection->device_link()->peer_signals;
}

}  // namespace

Result<DeviceAddress> StreamQueue::begin_send(CopyLink& link) {
  const CopyLinks::Options& options = links_.options();
  const std::uint64_t slot = link.sent % static_cast<std::uint64_t>(options.slots);
  UNISONO_TRY(wait(Waiting::Kind::credit, link, link.sent,
                   free_flag(own_signals(link), options.slots, slot)));
  return link.connection->device_link()->peer_region + transport::nvlink::slots_offset +
         slot * options.slot_bytes;
}

Status StreamQueue::end_send(CopyLink& link) {
  const std::uint64_t slot = link.sent++ % static_cast<std::uint64_t>(links_.options().slots);
  return add({.kind = MemoryOperation::write_value_64,
              .address = arrived_flag(peer_signals(link), slot),
              .value = 1});
}

Result<DeviceAddress> StreamQueue::begin_receive(CopyLink& link) {
  const CopyLinks::Options& options = links_.options();
  const std::uint64_t slot = link.received % static_cast<std::uint64_t>(options.slots);
  UNISONO_TRY(
      wait(Waiting::Kind::message, link, link.received, arrived_flag(own_signals(link), slot)));
  return link.connection->device_link()->region + transport::nvlink::slots_offset +
         slot * options.slot_bytes;
}

Status StreamQueue::end_receive(CopyLink& link) {
  const int slots = links_.options().slots;
  const std::uint64_t slot = link.received++ % static_cast<std::uint64_t>(slots);
  return add({.kind = MemoryOperation::write_value_64,
              .address = free_flag(peer_signals(link), slots, slot),
              .value = 1});
}

Status StreamQueue::want(const ZeroCopy& message) {
  return add(
      {.kind = MemoryOperation::write_value_64,
       .address = wanted_flag(peer_signals(*message.link), links_.options().slots, message.message),
       .value = 1});
}

Status StreamQueue::await_destination(const ZeroCopy& message) {
  return wait(Waiting::Kind::destination, *message.link, message.message,
              wanted_flag(own_signals(*message.link), links_.options().slots, message.message));
}

void StreamQueue::signal_stored(const ZeroCopy& message, int part) {
  untold_.push_back(stored_flag(peer_signals(*message.link), links_.options().slots,
                                message.first_part + static_cast<unsigned>(part)));
}

Status StreamQueue::tell_now() {
  for (const DeviceAddress flag : untold_)
    UNISONO_TRY(add({.kind = MemoryOperation::write_value_64, .address = flag, .value = 1}));
  untold_.clear();
  return {};
}

Status StreamQueue::await_stored(const ZeroCopy& message, int part) {
  return wait(Waiting::Kind::message, *message.link, message.link->received + message.message,
              stored_flag(own_signals(*message.link), links_.options().slots,
                          message.first_part + static_cast<unsigned>(part)));
}

Status StreamQueue::copy(DeviceAddress to, DeviceAddress from, std::size_t bytes) {
  if (bytes == 0 || to == from) return {};
  UNISONO_TRY(flush());
  if (counts_) links_.count_command();
  return device_.check(device_.driver().copy_async(to, from, bytes, stream_),
                       str("putting a copy of ", bytes, " bytes on a stream"));
}

Status StreamQueue::copy_concurrently(DeviceAddress to, DeviceAddress from, std::size_t bytes) {
  if (fork_ == nullptr || bytes < worth_a_fork_bytes) return copy(to, from, bytes);
  if (to == from) return {};
  const sys::cuda::Driver& driver = device_.driver();
  if (!is_forked_) {
    UNISONO_TRY(flush());
    UNISONO_TRY(device_.check(driver.event_record(fork_->begin, stream_), "recording an event"));
    UNISONO_TRY(device_.check(driver.stream_wait_event(fork_->stream, fork_->begin, 0),
                              "having a stream wait for an event"));
    is_forked_ = true;
  }
  return device_.check(driver.copy_async(to, from, bytes, fork_->stream),
                       str("putting a copy of ", bytes, " bytes on a stream"));
}

Status StreamQueue::finish() {
  UNISONO_TRY(tell_now());
  if (is_forked_) {
    UNISONO_TRY(flush());
    const sys::cuda::Driver& driver = device_.driver();
    UNISONO_TRY(
        device_.check(driver.event_record(fork_->end, fork_->stream), "recording an event"));
    UNISONO_TRY(device_.check(driver.stream_wait_event(stream_, fork_->end, 0),
                              "having a stream wait for an event"));
  }
  UNISONO_TRY(end_waits());
  if (counts_ && links_.owes_report()) report();
  return flush();
}

Status StreamQueue::pause() {
  UNISONO_TRY(tell_now());
  UNISONO_TRY(end_waits());
  report();
  return flush();
}

Status StreamQueue::end_waits() {
  if (!std::exchange(has_waited_, false)) return {};
  return add({.kind = MemoryOperation::write_value_64,
              .address = links_.progress_address(),
              .value = CopyLinks::idle_mark});
}

// Appends a report to the operations of the next flush().
void StreamQueue::report() { operations_[pending_++] = links_.take_report(); }

Status StreamQueue::wait(Waiting::Kind kind, const CopyLink& link, std::uint64_t message,
                         DeviceAddress flag) {
  UNISONO_TRY(tell_now());
  has_waited_ = true;
  UNISONO_TRY(add({.kind = MemoryOperation::write_value_64,
                   .address = links_.progress_address(),
                   .value = links_.mark(kind, link, message, timeout_ns_)}));
  UNISONO_TRY(add({.kind = MemoryOperation::wait_value_64, .address = flag, .value = 1}));
  return add({.kind = MemoryOperation::write_value_64, .address = flag, .value = 0});
}

Status StreamQueue::add(MemoryOperation operation) {
  operations_[pending_++] = operation;
  return pending_ == most_operations ? flush() : Status();
}

Status StreamQueue::flush() {
  if (pending_ == 0) return {};
  if (counts_) {
    if (pending_ < most_operations && links_.owes_report()) report();
    links_.count_command();
  }
  const auto count = static_cast<unsigned>(pending_);
  pending_ = 0;
  return device_.check(device_.driver().stream_operations(stream_, count, operations_.data(), 0),
                       "putting waits and stores on a stream");
}

}  // namespace unisono::engine::gpu
