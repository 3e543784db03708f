// How connections between devices end, and what they hold until then.

#include <chrono>
#include <thread>

#include "comm/device/connections.h"

namespace unisono::comm {

void DeviceConnections::abort(transport::Fault fault) {
  engine_->stop();
  if (signals_ != nullptr) signals_->stop();
  const std::lock_guard lock(mutex_);
  if (aborted_) return;
  aborted_ = true;
  fault_ = fault;
  for (auto& [key, entry] : entries_) entry.connection->abort(fault);
}

// Kernels end by their deadlines at the latest; one that fails in another way ends, too.
void DeviceConnections::suspend() {
  while (is_busy()) std::this_thread::sleep_for(std::chrono::microseconds(20));
  // Nothing else tells of replays.
  if (is_in_graphs_) {
    const sys::cuda::Current current(device());
    device().driver().context_synchronize();
  }
  engine_->copy_links().clear();
  const std::lock_guard lock(mutex_);
  entries_.clear();
  scratch_.clear();
}

void DeviceConnections::close() {
  if (engine_ == nullptr) return;
  suspend();
  const std::lock_guard registrations_lock(registrations_mutex_);
  registrations_.reset();
}

void DeviceConnections::report(MemoryReport& report) const {
  const std::lock_guard lock(mutex_);
  for (const auto& memory : scratch_) report.device_bytes += memory.bytes();
  for (const auto& [key, entry] : entries_) {
    report.device_bytes += entry.device_bytes;
    report.connections.push_back(
        {entry.peer, entry.channel, "nvlink", entry.connection->memory_bytes()});
  }
  const std::lock_guard registrations_lock(registrations_mutex_);
  if (!registrations_) return;
  report.registered_bytes = registrations_->shared_bytes();
  report.mapped_bytes = registrations_->mapped_bytes();
  constexpr int no_channel = -1;
  for (int peer = 0; peer < static_cast<int>(world_ranks_.size()); ++peer)
    if (const std::size_t bytes = registrations_->mail_bytes(peer); bytes > 0)
      report.connections.push_back({peer, no_channel, "registrations", bytes});
}

}  // namespace unisono::comm
