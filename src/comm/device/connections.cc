#include "comm/device/connections.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/try.h"
#include "base/wire.h"
#include "engine/gpu/link.h"
#include "transport/clock.h"

namespace unisono::comm {
namespace {

// Beyond the channels of plans and messages in host memory.
constexpr std::uint32_t first_channel = std::uint32_t{1} << 31;
// The channel on which ranks exchange descriptions of their memory.
constexpr std::uint32_t mail_channel = UINT32_MAX;
constexpr std::size_t max_reason_bytes = 4096;
// Scratch memory beyond what a call needs, for one that is a little larger.
constexpr std::size_t most_spare_bytes = std::size_t{16} << 20;

// Ranks that choose kernels by different rows would wait for each other without end.
Status check_same(int rank, std::string_view what, std::uint64_t theirs, std::uint64_t mine) {
  if (theirs == mine) return {};
  return misuse("rank ", rank, " chooses GPU kernels differently from this one: ", what,
                " differ. Give all ranks the same UNISONO_SELECTION_FILE and settings");
}

}  // namespace

DeviceConnections::DeviceConnections(std::shared_ptr<Job> job, ControlGroup& group,
                                     Identity identity)
    : job_(std::move(job)),
      identity_(identity),
      members_(group.members()),
      world_ranks_(members_->ranks()) {}

DeviceConnections::~DeviceConnections() {
  close();
  if (order_) order_->remove(launched_);
  if (engine_ == nullptr) return;
  const sys::cuda::Current current(device());
  if (launched_.captured != nullptr) device().driver().event_destroy(launched_.captured);
  for (sys::cuda::EventHandle* event : events_)
    if (event != nullptr) device().driver().event_destroy(event);
}

Result<std::unique_ptr<DeviceConnections>> DeviceConnections::make(std::shared_ptr<Job> job,
                                                                   ControlGroup& group,
                                                                   Identity identity, int ordinal) {
  std::unique_ptr<DeviceConnections> made(new DeviceConnections(std::move(job), group, identity));
  UNISONO_TRY(made->agree(group, made->open(ordinal)));
  UNISONO_TRY(made->reach_all(group));
  UNISONO_TRY(made->make_registrations());
  return made;
}

Status DeviceConnections::open(int ordinal) {
  UNISONO_ASSIGN(const auto device, sys::cuda::Device::open(ordinal));
  UNISONO_ASSIGN(engine_, engine::gpu::Engine::make(
                              device, engine::gpu::Options::from_settings(job_->settings())));
  UNISONO_ASSIGN(path_table_, engine::gpu::PathTable::from_settings(job_->settings()));
  const bool is_one_host =
      std::ranges::all_of(world_ranks_, [&](int rank) { return job_->is_on_this_host(rank); });
  if (is_one_host) {
    UNISONO_ASSIGN(transport_, job_->nvlink(device));
  }
  const sys::cuda::Current current(*device);
  const auto make_event = [&](sys::cuda::EventHandle*& event) {
    return device->check(device->driver().event_create(&event, sys::cuda::event_without_timing),
                         "making an event");
  };
  UNISONO_TRY(make_event(launched_.captured));
  for (sys::cuda::EventHandle*& event : events_) UNISONO_TRY(make_event(event));
  launched_.last = events_[0];
  if (engine_->stamp_board_address() == 0) return {};
  UNISONO_ASSIGN(stamps_, KernelStamps::make(*engine_, job_->sys_world().now_ns()));
  return {};
}

Result<std::pair<int, std::string>> DeviceConnections::first_reason(ControlGroup& group,
                                                                    const std::string& mine) const {
  WireWriter writer;
  writer.text(std::string_view(mine).substr(0, max_reason_bytes));
  UNISONO_ASSIGN(const Gathered all,
                 group.all_gather(writer.bytes(), job_->bootstrap_timeout_ns()));
  for (int rank = 0; rank < all.size(); ++rank) {
    WireReader reader(all[rank]);
    const std::string_view reason = reader.text(max_reason_bytes);
    if (!reader.done())
      return peer_error(rank, "rank ", rank,
                        " sent a description of its CUDA device that cannot be read; is it another "
                        "version of unisono?");
    if (!reason.empty()) return std::pair(rank, std::string(reason));
  }
  return std::pair(-1, std::string());
}

Status DeviceConnections::agree(ControlGroup& group, const Status& mine) const {
  UNISONO_ASSIGN(const auto first,
                 first_reason(group, mine.ok() ? std::string() : mine.error().message));
  if (!mine.ok()) return Error(mine.error());
  if (first.second.empty()) return {};
  return environment_error("rank ", first.first,
                           " cannot run calls on CUDA streams: ", first.second);
}

Status DeviceConnections::reach_all(ControlGroup& group) {
  thread_blocks_ = engine_->max_blocks();
  bool has_tma = engine_->copies_by_tma();
  int architecture = device().compute_capability();
  const std::uint64_t zero_copy_min_bytes = engine_->options().zero_copy_min_bytes;
  const std::uint64_t table_hash = path_table_.hash();
  int driver_version = 0;
  UNISONO_TRY(device().check(device().driver().driver_version(&driver_version),
                             "asking for the driver's version"));
  WireWriter writer;
  writer.raw(std::as_bytes(std::span(device().uuid().bytes)));
  writer.number(static_cast<std::uint32_t>(thread_blocks_));
  writer.number(static_cast<std::uint32_t>(driver_version));
  writer.number(static_cast<std::uint8_t>(has_tma ? 1 : 0));
  writer.number(static_cast<std::uint32_t>(architecture));
  writer.number(table_hash);
  writer.number(zero_copy_min_bytes);
  UNISONO_ASSIGN(const Gathered all,
                 group.all_gather(writer.bytes(), job_->bootstrap_timeout_ns()));
  std::string reason;
  if (!job_->settings().boolean(Setting::gpu_peer_access) && group.size() > 1)
    reason = "UNISONO_GPU_PEER_ACCESS is 0 there";
  std::map<std::string, int> sharing;
  for (int rank = 0; rank < all.size(); ++rank) {
    sys::cuda::Uuid theirs;
    if (all[rank].size() != writer.bytes().size())
      return peer_error(rank, "rank ", rank, " sent a description of its CUDA device of ",
                        all[rank].size(), " bytes; ", writer.bytes().size(), " were expected");
    WireReader reader(all[rank].subspan(theirs.bytes.size()));
    const auto blocks = static_cast<int>(reader.number<std::uint32_t>());
    if (blocks < 1)
      return peer_error(rank, "rank ", rank, " reports that its CUDA device can run ", blocks,
                        " thread blocks at once; it must be at least 1");
    thread_blocks_ = std::min(thread_blocks_, blocks);
    const auto version = static_cast<int>(reader.number<std::uint32_t>());
    has_tma = reader.number<std::uint8_t>() != 0 && has_tma;
    // The rows of the oldest device hold for all.
    architecture = std::min(architecture, static_cast<int>(reader.number<std::uint32_t>()));
    UNISONO_TRY(check_same(rank, "the rows of its path table and selection file",
                           reader.number<std::uint64_t>(), table_hash));
    UNISONO_TRY(check_same(rank, "its UNISONO_GPU_ZERO_COPY and UNISONO_GPU_ZERO_COPY_MIN_BYTES",
                           reader.number<std::uint64_t>(), zero_copy_min_bytes));
    if (!job_->is_on_this_host(world_ranks_[static_cast<std::size_t>(rank)])) {
      if (reason.empty()) reason = str("rank ", rank, " is on another host");
      continue;
    }
    const auto uuid = all[rank].first(theirs.bytes.size());
    std::ranges::copy(uuid, std::as_writable_bytes(std::span(theirs.bytes)).begin());
    ++sharing[std::string(reinterpret_cast<const char*>(uuid.data()), uuid.size())];
    if (rank < identity_.rank && theirs.bytes == device().uuid().bytes) ++index_on_device_;
    if (reason.empty() && !device().can_access(theirs))
      reason = str("CUDA device ", device().ordinal(), " (", device().name(),
                   ") cannot reach the memory of the device of rank ", rank);
    if (reason.empty() && version != driver_version)
      reason = str("its CUDA driver is ", driver_version, ", that of rank ", rank, " is ", version,
                   ": neither rank can map the other's memory");
  }
  engine_->use(path_table_.resolve(architecture, has_tma, zero_copy_min_bytes));
  const int most =
      std::ranges::max_element(sharing, {}, [](const auto& one) { return one.second; })->second;
  if (most > 1) {
    thread_blocks_ = std::max(thread_blocks_ / most, 1);
    most_sms_ = std::max(device().sms() / most, 1);
    UNISONO_TRY(engine_->share_device());
  }
  order_ = LaunchOrder::of(device().ordinal(), index_on_device_);
  order_->add(launched_);
  UNISONO_ASSIGN(const auto first, first_reason(group, reason));
  if (first.second.empty()) return {};
  const std::string because = str("rank ", first.first, " cannot access all GPUs: ", first.second);
  if (!job_->settings().boolean(Setting::staged))
    return environment_error(because,
                             ". UNISONO_STAGED=1 stages calls on CUDA streams through "
                             "host memory");
  why_staged_ =
      str("Calls on CUDA streams are staged through host memory, which is slow: ", because);
  static std::atomic<bool> is_told{false};
  if (identity_.rank == 0 && !is_told.exchange(true)) log(LogLevel::warn, why_staged_);
  return {};
}

transport::ConnectionKey DeviceConnections::key_of(std::uint32_t channel) const {
  constexpr std::int64_t no_color = -2;  // of any split or shrink
  const std::uint64_t communicator =
      generation_ == 0 ? identity_.communicator
                       : child_communicator(identity_.communicator, generation_, no_color);
  return {communicator, identity_.epoch, channel};
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
  registrations_ = std::make_unique<transport::nvlink::Registrations>(engine_->shared_device(),
                                                                      std::move(mails));
  return {};
}

Status DeviceConnections::make_entry(const Link& wanted) {
  const int world_rank = world_ranks_[static_cast<std::size_t>(wanted.peer)];
  const auto channel = first_channel + static_cast<std::uint32_t>(wanted.channel) * protocol_count +
                       static_cast<std::uint32_t>(wanted.protocol);
  UNISONO_ASSIGN(const std::string address, job_->address_on_host(world_rank));
  UNISONO_ASSIGN(auto connection,
                 transport_->connect({.key = key_of(channel),
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

Status DeviceConnections::progress() { return transport_->progress(); }

Result<sys::cuda::DeviceAddress> DeviceConnections::scratch(std::size_t bytes) {
  if (scratch_.empty() || scratch_.back().bytes() < bytes) {
    const std::size_t more = bytes + std::min(bytes, most_spare_bytes);
    UNISONO_ASSIGN(auto memory, sys::cuda::Memory::allocate(engine_->shared_device(), more));
    const std::lock_guard lock(mutex_);
    scratch_.push_back(std::move(memory));
  }
  return scratch_.back().address();
}

void DeviceConnections::find_peer_mappings(const void* data, std::size_t bytes,
                                           std::span<sys::cuda::DeviceAddress> by_rank,
                                           bool is_captured) {
  const auto address = reinterpret_cast<sys::cuda::DeviceAddress>(data);
  std::unique_lock lock(registrations_mutex_, std::defer_lock);
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

// What is found then holds in all replays. A rank that has not answered in time is waited for no
// more until it has.
void DeviceConnections::wait_for_answers() {
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

void DeviceConnections::share_memory() {
  const std::unique_lock lock(registrations_mutex_, std::try_to_lock);
  if (lock && registrations_) registrations_->advance(!is_busy());
}

void DeviceConnections::share_new_memory() {
  const std::unique_lock lock(registrations_mutex_, std::try_to_lock);
  if (lock && registrations_ && registrations_->has_wanted()) registrations_->advance(!is_busy());
}

Status DeviceConnections::register_memory(const void* data, std::size_t bytes,
                                          std::int64_t patience_ns) {
  UNISONO_TRY(check_buffer("memory to be registered", data, identity_.rank));
  const auto address = reinterpret_cast<sys::cuda::DeviceAddress>(data);
  const std::int64_t until_ns = transport::now_ns() + patience_ns;
  for (bool is_known = false;; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    const std::lock_guard lock(registrations_mutex_);
    if (!registrations_) return {};
    if (!is_known && !registrations_->add(address, bytes))
      return environment_error("device memory of ", bytes, " bytes on rank ", identity_.rank,
                               " cannot be shared with other processes; allocate it by cudaMalloc, "
                               "ncclMemAlloc or unisono.torch.MemPool");
    is_known = true;
    registrations_->advance(!is_busy());
    if (registrations_->all_have_answered() || transport::now_ns() >= until_ns) return {};
  }
}

Status DeviceConnections::check_stream(void* stream) const {
  auto* handle = static_cast<sys::cuda::StreamHandle*>(stream);
  if (is_staged()) {
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
  UNISONO_TRY(check_stream(stream));
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
  if (stamps_) stamps_->look(now_ns);
}

Status DeviceConnections::check_peers() {
  if (entries_.empty()) return {};
  next_checked_ = (next_checked_ + 1) % entries_.size();
  const auto entry = std::next(entries_.begin(), static_cast<std::ptrdiff_t>(next_checked_));
  Status lives = entry->second.connection->check_peer();
  // A peer that has closed may have done its part of a call that has not begun here.
  if (lives.ok() || engine_->copy_links().is_waiting() || !engine_->long_waits().empty())
    return lives;
  return {};
}

}  // namespace unisono::comm
