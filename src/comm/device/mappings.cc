#include "comm/device/mappings.h"

#include <chrono>
#include <thread>

#include "base/error.h"
#include "engine/gpu/execution.h"
#include "transport/clock.h"

namespace unisono::comm {

void Mappings::start(std::unique_ptr<transport::nvlink::Registrations> registrations) {
  const std::lock_guard lock(mutex_);
  registrations_ = std::move(registrations);
}

void Mappings::find(const void* data, std::size_t bytes,
                    std::span<sys::cuda::DeviceAddress> by_rank, bool is_captured) {
  const auto address = reinterpret_cast<sys::cuda::DeviceAddress>(data);
  std::unique_lock lock(mutex_, std::defer_lock);
  if (is_captured)
    lock.lock();
  else if (!lock.try_lock())
    return;
  if (!registrations_) return;
  registrations_->find(address, bytes, by_rank);
  if (!is_captured) return;
  wait_for_answers();
  registrations_->find(address, bytes, by_rank);
}

// All replays use the mappings that are found then. A rank that has not answered in time is waited
// for no more until it has.
void Mappings::wait_for_answers() {
  const std::int64_t until_ns = transport::now_ns() + engine::gpu::patience_in_captures_ns;
  for (;; std::this_thread::sleep_for(std::chrono::microseconds(100))) {
    registrations_->advance(false);
    if (registrations_->all_have_answered()) {
      waits_for_answers_ = true;
      return;
    }
    if (!waits_for_answers_ || transport::now_ns() >= until_ns) break;
  }
  waits_for_answers_ = false;
}

Status Mappings::add(const void* data, std::size_t bytes, int rank, std::int64_t patience_ns) {
  const auto address = reinterpret_cast<sys::cuda::DeviceAddress>(data);
  const std::int64_t until_ns = transport::now_ns() + patience_ns;
  for (bool is_known = false;; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    const std::lock_guard lock(mutex_);
    if (!registrations_) return {};
    if (!is_known && !registrations_->add(address, bytes))
      return environment_error("device memory of ", bytes, " bytes on rank ", rank,
                               " cannot be shared with other processes; allocate it by cudaMalloc, "
                               "ncclMemAlloc or unisono.torch.MemPool");
    is_known = true;
    registrations_->advance(!is_busy_());
    if (registrations_->all_have_answered() || transport::now_ns() >= until_ns) return {};
  }
}

void Mappings::exchange() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock && registrations_) registrations_->advance(!is_busy_());
}

void Mappings::exchange_news() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock && registrations_ && registrations_->has_news()) registrations_->advance(!is_busy_());
}

void Mappings::report(MemoryReport& report, int ranks) const {
  const std::lock_guard lock(mutex_);
  if (!registrations_) return;
  report.registered_bytes = registrations_->shared_bytes();
  report.mapped_bytes = registrations_->mapped_bytes();
  constexpr int no_channel = -1;
  for (int peer = 0; peer < ranks; ++peer)
    if (const std::size_t bytes = registrations_->mail_bytes(peer); bytes > 0)
      report.connections.push_back({peer, no_channel, "registrations", bytes});
}

}  // namespace unisono::comm
