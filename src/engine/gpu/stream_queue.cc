#include "engine/gpu/stream_queue.h"

#include "base/str.h"
#include "base/try.h"
#include "transport/nvlink/layout.h"

namespace unisono::engine::gpu {
namespace {

using sys::cuda::address_of;
using sys::cuda::DeviceAddress;
using sys::cuda::MemoryOperation;
using trace::Waiting;

// Flags of an end, by slot: what has arrived there, then what is free for it at the peer.
DeviceAddress arrived_flag(DeviceAddress signals, std::uint64_t slot) {
  return signals + slot * sizeof(std::uint64_t);
}
DeviceAddress free_flag(DeviceAddress signals, int slots, std::uint64_t slot) {
  return signals + (static_cast<std::uint64_t>(slots) + slot) * sizeof(std::uint64_t);
}

}  // namespace

Result<DeviceAddress> StreamQueue::begin_send(CopyLink& link) {
  const CopyLinks::Options& options = links_.options();
  const std::uint64_t slot = link.sent % static_cast<std::uint64_t>(options.slots);
  UNISONO_TRY(wait(Waiting::Kind::credit, link, link.sent,
                   free_flag(address_of(link.connection->signals()), options.slots, slot)));
  return address_of(link.connection->peer_region()) + transport::nvlink::slots_offset +
         slot * options.slot_bytes;
}

Status StreamQueue::end_send(CopyLink& link) {
  const std::uint64_t slot = link.sent++ % static_cast<std::uint64_t>(links_.options().slots);
  return add({.kind = MemoryOperation::write_value_64,
              .address = arrived_flag(address_of(link.connection->peer_signals()), slot),
              .value = 1});
}

Result<DeviceAddress> StreamQueue::begin_receive(CopyLink& link) {
  const CopyLinks::Options& options = links_.options();
  const std::uint64_t slot = link.received % static_cast<std::uint64_t>(options.slots);
  UNISONO_TRY(wait(Waiting::Kind::message, link, link.received,
                   arrived_flag(address_of(link.connection->signals()), slot)));
  return address_of(link.connection->region()) + transport::nvlink::slots_offset +
         slot * options.slot_bytes;
}

Status StreamQueue::end_receive(CopyLink& link) {
  const int slots = links_.options().slots;
  const std::uint64_t slot = link.received++ % static_cast<std::uint64_t>(slots);
  return add({.kind = MemoryOperation::write_value_64,
              .address = free_flag(address_of(link.connection->peer_signals()), slots, slot),
              .value = 1});
}

Status StreamQueue::copy(DeviceAddress to, DeviceAddress from, std::size_t bytes) {
  if (bytes == 0 || to == from) return {};
  UNISONO_TRY(flush());
  return device_.check(device_.driver().copy_async(to, from, bytes, stream_),
                       str("putting a copy of ", bytes, " bytes on a stream"));
}

Status StreamQueue::finish() {
  if (has_waited_)
    UNISONO_TRY(add({.kind = MemoryOperation::write_value_64,
                     .address = links_.progress_address(),
                     .value = CopyLinks::idle_mark}));
  return flush();
}

Status StreamQueue::wait(Waiting::Kind kind, const CopyLink& link, std::uint64_t message,
                         DeviceAddress flag) {
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
  const auto count = static_cast<unsigned>(pending_);
  pending_ = 0;
  return device_.check(device_.driver().stream_operations(stream_, count, operations_.data(), 0),
                       "putting waits and stores on a stream");
}

}  // namespace unisono::engine::gpu
