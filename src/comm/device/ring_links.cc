#include "comm/device/ring_links.h"

#include "base/error.h"
#include "base/settings.h"
#include "base/try.h"
#include "engine/gpu/link.h"

namespace unisono::comm {

Result<RingUse> ring_use_from(const Settings& settings) {
  const std::string& text = settings.text(Setting::gpu_ring_links);
  if (text == "auto") return RingUse::where_measured;
  if (text == "on" || text == "1") return RingUse::always;
  if (text == "off" || text == "0") return RingUse::never;
  return misuse("UNISONO_GPU_RING_LINKS is '", text, "'; write auto, on or off");
}

Result<RingLinks::Entry> RingLinks::make_entry(const transport::ConnectionKey& key, int peer) {
  UNISONO_ASSIGN(const transport::Route* const route,
                 job_->route_to(world_ranks_[static_cast<std::size_t>(peer)]));
  UNISONO_ASSIGN(auto connection,
                 route->transport->connect({.key = key,
                                            .ranks = static_cast<int>(world_ranks_.size()),
                                            .self = rank_,
                                            .peer = peer,
                                            .peer_address = route->address,
                                            .geometry = connection_geometry(geometry_)}));
  UNISONO_ASSIGN(auto link, transport::ring::Link::make(device_, std::move(connection), geometry_));
  return Entry{.link = std::move(link), .transport = route->transport};
}

Result<const transport::ring::Link*> RingLinks::find(const transport::ConnectionKey& key, int peer,
                                                     int channel) {
  const Key name{peer, channel};
  auto found = entries_.find(name);
  if (found == entries_.end()) {
    UNISONO_ASSIGN(Entry made, make_entry(key, peer));
    const std::lock_guard lock(mutex_);
    // abort() may have run before this link existed.
    if (is_aborted_) made.link->abort(fault_);
    found = entries_.emplace(name, std::move(made)).first;
  }
  Entry& entry = found->second;
  if (!entry.is_ready) {
    UNISONO_ASSIGN(entry.is_ready, entry.link->ready());
    if (!entry.is_ready) return nullptr;
    UNISONO_TRY(engine::gpu::store_link(*device_, *entry.link, channel));
    if (!forwarder_) {
      UNISONO_ASSIGN(forwarder_, transport::ring::Forwarder::make(job_->sys_world()));
    }
    forwarder_->add(*entry.link, *entry.transport);
  }
  return entry.link.get();
}

Status RingLinks::progress() {
  for (auto& [name, entry] : entries_)
    if (!entry.is_ready) UNISONO_TRY(entry.transport->progress());
  return {};
}

void RingLinks::begin_launch(bool is_captured) {
  if (!forwarder_) return;
  if (is_captured)
    forwarder_->stay_near();
  else
    forwarder_->wake();
}

void RingLinks::end_launches() {
  if (forwarder_) forwarder_->rest();
}

Status RingLinks::failure() const { return forwarder_ ? forwarder_->failure() : Status(); }

void RingLinks::abort(transport::Fault fault) {
  const std::lock_guard lock(mutex_);
  if (is_aborted_) return;
  is_aborted_ = true;
  fault_ = fault;
  for (auto& [name, entry] : entries_) entry.link->abort(fault);
}

void RingLinks::report(MemoryReport& report) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, entry] : entries_)
    report.connections.push_back({name.first, name.second, "ring", entry.link->memory_bytes()});
}

void RingLinks::clear() {
  {
    const std::lock_guard lock(mutex_);
    if (is_aborted_ && forwarder_) forwarder_->give_up();
  }
  forwarder_.reset();
  const std::lock_guard lock(mutex_);
  entries_.clear();
}

}  // namespace unisono::comm
