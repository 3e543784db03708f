#include "comm/device/connections.h"

#include <algorithm>

#include "base/error.h"
#include "base/settings.h"
#include "base/try.h"
#include "engine/gpu/link.h"
#include "transport/clock.h"

namespace unisono::comm {
namespace {

// Beyond the channels of plans and messages in host memory.
constexpr std::uint32_t first_channel = std::uint32_t{1} << 31;
// The channel on which ranks exchange descriptions of their memory.
constexpr std::uint32_t mail_channel = UINT32_MAX;
// Scratch memory beyond what a call needs, for one that is a little larger.
constexpr std::size_t most_spare_bytes = std::size_t{16} << 20;

}  // namespace

DeviceConnections::DeviceConnections(std::shared_ptr<Job> job, ControlGroup& group,
                                     Identity identity)
    : job_(std::move(job)),
      identity_(identity),
      members_(group.members()),
      world_ranks_(members_->ranks()),
      mappings_([this] { return is_busy(); }) {}

DeviceConnections::~DeviceConnections() { close(); }

Result<std::unique_ptr<DeviceConnections>> DeviceConnections::make(
    std::shared_ptr<Job> job, ControlGroup& group, Identity identity, int ordinal,
    const topo::Placement& placement) {
  std::unique_ptr<DeviceConnections> made(new DeviceConnections(std::move(job), group, identity));
  UNISONO_TRY(made->agree(group, made->open_device(ordinal)));
  UNISONO_TRY(made->reach_all(group, placement));
  UNISONO_TRY(made->make_registrations());
  return made;
}

Status DeviceConnections::open_device(int ordinal) {
  // What may be refused without the device comes first: its events are made last.
  UNISONO_ASSIGN(path_table_, engine::gpu::PathTable::from_settings(job_->settings()));
  UNISONO_ASSIGN(ll128_use_, engine::gpu::ll128_use_from_settings(job_->settings()));
  UNISONO_ASSIGN(const auto device, sys::cuda::Device::open(ordinal));
  UNISONO_ASSIGN(engine_, engine::gpu::Engine::make(
                              device, engine::gpu::Options::from_settings(job_->settings())));
  const auto on_this_host =
      std::ranges::count_if(world_ranks_, [&](int rank) { return job_->is_on_this_host(rank); });
  if (on_this_host > 1 || world_ranks_.size() == 1) {
    UNISONO_ASSIGN(transport_, job_->nvlink(device));
  }
  UNISONO_ASSIGN(launches_, DeviceLaunches::make(*engine_, mappings_, job_->sys_world()));
  return {};
}

transport::ConnectionKey DeviceConnections::key_of(std::uint32_t channel) const {
  constexpr std::int64_t no_color = -2;  // of any split or shrink
  const std::uint64_t communicator =
      generation_ == 0 ? identity_.communicator
                       : child_communicator(identity_.communicator, generation_, no_color);
  return {communicator, identity_.epoch, channel};
}

transport::ConnectionKey DeviceConnections::key_of(const Link& wanted) const {
  return key_of(first_channel + static_cast<std::uint32_t>(wanted.channel) * protocol_count +
                static_cast<std::uint32_t>(wanted.protocol));
}

Status DeviceConnections::make_registrations() {
  if (is_staged() || engine_->options().zero_copy_min_bytes == engine::gpu::Options::no_zero_copy ||
      world_ranks_.size() > static_cast<std::size_t>(device::max_mapped_peers))
    return {};
  std::vector<std::unique_ptr<transport::nvlink::Mail>> mails(world_ranks_.size());
  for (std::size_t peer = 0; peer < world_ranks_.size(); ++peer) {
    if (static_cast<int>(peer) == identity_.rank) continue;
    UNISONO_ASSIGN(const transport::Route* const route, job_->route_to(world_ranks_[peer]));
    UNISONO_ASSIGN(auto connection,
                   route->transport->connect({.key = key_of(mail_channel),
                                              .ranks = static_cast<int>(world_ranks_.size()),
                                              .self = identity_.rank,
                                              .peer = static_cast<int>(peer),
                                              .peer_address = route->address,
                                              .geometry = transport::nvlink::Mail::geometry()}));
    mails[peer] = std::make_unique<transport::nvlink::Mail>(std::move(connection));
  }
  mappings_.start(std::make_unique<transport::nvlink::Registrations>(engine_->shared_device(),
                                                                     std::move(mails)));
  return {};
}

Status DeviceConnections::make_entry(const Link& wanted) {
  const int world_rank = world_ranks_[static_cast<std::size_t>(wanted.peer)];
  UNISONO_ASSIGN(const std::string address, job_->address_on_host(world_rank));
  UNISONO_ASSIGN(auto connection,
                 transport_->connect({.key = key_of(wanted),
                                      .ranks = static_cast<int>(world_ranks_.size()),
                                      .self = identity_.rank,
                                      .peer = wanted.peer,
                                      .peer_address = address,
                                      .geometry = wanted.geometry}));
  const std::lock_guard lock(mutex_);
  // abort() may have run before this connection existed.
  if (aborted_) connection->abort(fault_);
  entries_[{wanted.peer, wanted.channel, wanted.protocol}] = {
      wanted.peer, wanted.channel, wanted.geometry.region_bytes, false, std::move(connection)};
  return {};
}

Result<transport::Connection*> DeviceConnections::link(const Link& wanted) {
  const Key key{wanted.peer, wanted.channel, wanted.protocol};
  auto found = entries_.find(key);
  if (found == entries_.end()) {
    UNISONO_TRY(make_entry(wanted));
    found = entries_.find(key);
  }
  Entry& entry = found->second;
  if (!entry.ready) {
    UNISONO_ASSIGN(entry.ready, entry.connection->ready());
    if (!entry.ready) return nullptr;
    UNISONO_TRY(engine::gpu::store_link(device(), *entry.connection, wanted.channel));
  }
  return entry.connection.get();
}

Result<std::optional<device::Link>> DeviceConnections::interpreter_link(const Link& wanted) {
  if (!is_ring_peer(wanted.peer)) return Resources::interpreter_link(wanted);
  UNISONO_ASSIGN(const transport::ring::Link* const link,
                 rings_->find(key_of(wanted), wanted.peer, wanted.channel));
  if (link == nullptr) return std::optional<device::Link>();
  return std::optional(engine::gpu::link_of(*link, wanted.channel));
}

Result<sys::cuda::DeviceAddress> DeviceConnections::message_link(const Link& wanted) {
  if (!is_ring_peer(wanted.peer)) return Resources::message_link(wanted);
  UNISONO_ASSIGN(const transport::ring::Link* const link,
                 rings_->find(key_of(wanted), wanted.peer, wanted.channel));
  return link != nullptr ? engine::gpu::stored_link(*link) : sys::cuda::DeviceAddress{0};
}

Status DeviceConnections::progress() {
  if (rings_) UNISONO_TRY(rings_->progress());
  return transport_ != nullptr ? transport_->progress() : Status();
}

Result<sys::cuda::DeviceAddress> DeviceConnections::scratch(std::size_t bytes) {
  if (scratch_.empty() || scratch_.back().bytes() < bytes) {
    const std::size_t more = bytes + std::min(bytes, most_spare_bytes);
    UNISONO_ASSIGN(auto memory, sys::cuda::Memory::allocate(engine_->shared_device(), more));
    const std::lock_guard lock(mutex_);
    scratch_.push_back(std::move(memory));
  }
  return scratch_.back().address();
}

Status DeviceConnections::register_memory(const void* data, std::size_t bytes,
                                          std::int64_t patience_ns) {
  UNISONO_TRY(check_buffer("memory to be registered", data, identity_.rank));
  return mappings_.add(data, bytes, identity_.rank, patience_ns);
}

Status DeviceConnections::check_stream(void* stream, bool is_staged) const {
  auto* handle = static_cast<sys::cuda::StreamHandle*>(stream);
  if (is_staged) {
    const sys::cuda::Current current(device());
    int capturing = 0;
    UNISONO_TRY(device().check(device().driver().stream_is_capturing(handle, &capturing),
                               "looking at a stream"));
    if (capturing != 0)
      return misuse("the call on rank ", identity_.rank,
                    " cannot be captured into a CUDA graph: it is staged through host memory, "
                    "because not all devices of communicator ",
                    identity_.communicator, " can access each other's memory");
  }
  if (sys::cuda::is_default(handle)) return {};
  sys::cuda::ContextHandle* context = nullptr;
  UNISONO_TRY(
      device().check(device().driver().stream_context(handle, &context), "looking at a stream"));
  if (context == device().context()) return {};
  return misuse("the stream does not belong to CUDA device ", device().ordinal(),
                ", which communicator ", identity_.communicator, " uses on rank ", identity_.rank,
                "; pass a stream of that device's primary context");
}

Status DeviceConnections::check_buffer(std::string_view which, const void* data, int rank) const {
  if (data == nullptr) return {};
  const sys::cuda::PointerKind kind = sys::cuda::kind_of(device().driver(), data);
  if (kind.is_device && kind.ordinal == device().ordinal()) return {};
  if (kind.is_device)
    return misuse("the ", which, " is memory of CUDA device ", kind.ordinal, " on rank ", rank,
                  "; the communicator uses device ", device().ordinal());
  // The driver of a device that failed tells nothing of an address.
  UNISONO_TRY(check_device());
  return misuse("the ", which, " is host memory on rank ", rank,
                "; a call on a stream needs memory of CUDA device ", device().ordinal());
}

Status DeviceConnections::copy_to_peer(sys::cuda::StreamHandle* stream,
                                       sys::cuda::DeviceAddress target, const void* data,
                                       std::size_t bytes) const {
  UNISONO_TRY(check_stream(stream, is_staged()));
  const sys::cuda::Current current(device());
  return device().check(
      device().driver().copy_async(target, sys::cuda::address_of(data), bytes, stream),
      str("putting ", bytes, " bytes into a peer's memory"));
}

Status DeviceConnections::failure() const {
  UNISONO_TRY(engine_->failure());
  return signals_ != nullptr ? signals_->failure() : Status();
}

void DeviceConnections::look(std::int64_t now_ns) {
  engine_->copy_links().look(now_ns);
  if (signals_ != nullptr) signals_->look(now_ns);
  if (KernelStamps* const stamps = launches_->stamps()) stamps->look(now_ns);
}

Status DeviceConnections::check_peers() {
  if (rings_) {
    // A peer that has left may have done its part of the call.
    Status lost = rings_->failure();
    if (!lost.ok() && (lost.error().reason != FailureReason::left || !long_waits().empty()))
      return lost;
  }
  if (entries_.empty()) return {};
  next_checked_ = (next_checked_ + 1) % entries_.size();
  const auto entry = std::next(entries_.begin(), static_cast<std::ptrdiff_t>(next_checked_));
  Status lives = entry->second.connection->check_peer();
  // A peer that has closed may have done its part of a call that has not begun here.
  if (lives.ok() || engine_->copy_links().is_waiting() || !long_waits().empty()) return lives;
  return {};
}

}  // namespace unisono::comm
