#include "engine/gpu/stream_queue.h"

#include <utility>

#include "base/str.h"
#include "base/try.h"
#include "transport/nvlink/layout.h"

namespace unisono::engine::gpu {
namespace {

using sys::cuda::DeviceAddress;
using sys::cuda::MemoryOperation;

// A fork takes five calls of the driver, some microseconds.
constexpr std::size_t worth_a_fork_bytes = 1 << 20;

using Flag = CopyWait::Flag;

}  // namespace

Result<DeviceAddress> StreamQueue::begin_send(CopyLink& link) {
  const CopyLinks::Options& options = links_.options();
  UNISONO_TRY(wait({.flag = Flag::free, .link = &link, .number = link.sent}));
  return link.connection->device_link()->peer_region + transport::nvlink::slots_offset +
         link.sent % static_cast<std::uint64_t>(options.slots) * options.slot_bytes;
}

Status StreamQueue::end_send(CopyLink& link, std::uint32_t tag) {
  return store(links_.flag_of_peer({.flag = Flag::arrived, .link = &link, .number = link.sent++}),
               flag_value(tag));
}

Result<DeviceAddress> StreamQueue::begin_receive(CopyLink& link, std::uint32_t tag) {
  const CopyLinks::Options& options = links_.options();
  UNISONO_TRY(wait({.flag = Flag::arrived, .link = &link, .number = link.received, .tag = tag}));
  return link.connection->device_link()->region + transport::nvlink::slots_offset +
         link.received % static_cast<std::uint64_t>(options.slots) * options.slot_bytes;
}

Status StreamQueue::end_receive(CopyLink& link) {
  return store(links_.flag_of_peer({.flag = Flag::free, .link = &link, .number = link.received++}),
               free_value);
}

Status StreamQueue::want(const ZeroCopy& message) {
  return store(
      links_.flag_of_peer({.flag = Flag::wanted, .link = message.link, .number = message.message}),
      flag_value(message.tag));
}

Status StreamQueue::await_destination(const ZeroCopy& message) {
  return wait(
      {.flag = Flag::wanted, .link = message.link, .number = message.message, .tag = message.tag});
}

void StreamQueue::signal_stored(const ZeroCopy& message, int part) {
  untold_.push_back(
      {links_.flag_of_peer({.flag = Flag::stored,
                            .link = message.link,
                            .number = message.first_part + static_cast<unsigned>(part)}),
       message.tag});
}

Status StreamQueue::tell_now() {
  for (const Untold& untold : untold_) UNISONO_TRY(store(untold.flag, flag_value(untold.tag)));
  untold_.clear();
  return {};
}

Status StreamQueue::await_stored(const ZeroCopy& message, int part) {
  return wait({.flag = Flag::stored,
               .link = message.link,
               .number = message.first_part + static_cast<unsigned>(part),
               .tag = message.tag});
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
  return store(links_.progress_address(), CopyLinks::idle_mark);
}

// Appends a report to the operations of the next flush().
void StreamQueue::report() { operations_[pending_++] = links_.take_report(); }

Status StreamQueue::store(DeviceAddress flag, std::uint64_t value) {
  return add({.kind = MemoryOperation::write_value_64, .address = flag, .value = value});
}

Status StreamQueue::wait(CopyWait wait) {
  UNISONO_TRY(tell_now());
  has_waited_ = true;
  wait.timeout_ns = timeout_ns_;
  UNISONO_TRY(store(links_.progress_address(), links_.mark(wait)));
  const DeviceAddress flag = links_.flag_of(wait);
  UNISONO_TRY(add({.kind = MemoryOperation::wait_value_64,
                   .address = flag,
                   .value = wait.flag == Flag::free ? free_value : flag_value(wait.tag),
                   .flags = MemoryOperation::equal}));
  return store(flag, 0);
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
