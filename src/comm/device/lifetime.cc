// How connections between devices end, and what they hold until then.

#include "comm/device/connections.h"

namespace unisono::comm {

void DeviceConnections::abort(transport::Fault fault) {
  engine_->stop();
  if (signals_ != nullptr) signals_->stop();
  if (rings_) rings_->abort(fault);
  const std::lock_guard lock(mutex_);
  if (aborted_) return;
  aborted_ = true;
  fault_ = fault;
  for (auto& [key, entry] : entries_) entry.connection->abort(fault);
}

void DeviceConnections::suspend() {
  launches_->wait();
  engine_->copy_links().clear();
  if (rings_) rings_->clear();
  const std::lock_guard lock(mutex_);
  entries_.clear();
  scratch_.clear();
}

void DeviceConnections::close() {
  if (launches_ == nullptr) return;
  suspend();
  mappings_.stop();
}

void DeviceConnections::report(MemoryReport& report) const {
  const std::lock_guard lock(mutex_);
  for (const auto& memory : scratch_) report.device_bytes += memory.bytes();
  for (const auto& [key, entry] : entries_) {
    report.device_bytes += entry.device_bytes;
    report.connections.push_back(
        {entry.peer, entry.channel, "nvlink", entry.connection->memory_bytes()});
  }
  if (rings_) rings_->report(report);
  mappings_.report(report, static_cast<int>(world_ranks_.size()));
}

}  // namespace unisono::comm
