#include "comm/run/connections.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/try.h"

namespace unisono::comm {

void Connections::FreeScratch::operator()(void* memory) const { std::free(memory); }

Connections::Connections(std::shared_ptr<Job> job, std::uint64_t communicator, std::uint32_t epoch,
                         int rank, const std::vector<int>& world_ranks)
    : job_(std::move(job)),
      communicator_(communicator),
      epoch_(epoch),
      rank_(rank),
      world_ranks_(world_ranks),
      clock_(job_->sys_world()) {}

Connections::Entry* Connections::find(int peer, int channel) {
  const auto found = by_peer_.find(peer);
  if (found == by_peer_.end()) return nullptr;
  for (const auto& entry : found->second)
    if (entry->channel == channel) return entry.get();
  return nullptr;
}

Status Connections::make_entry(int peer, int channel) {
  const int world_rank = world_ranks_[static_cast<std::size_t>(peer)];
  UNISONO_ASSIGN(const transport::Route* const route, job_->route_to(world_rank));
  const transport::ConnectionRequest request{
      .key = {communicator_, epoch_, static_cast<std::uint32_t>(channel)},
      .ranks = static_cast<int>(world_ranks_.size()),
      .self = rank_,
      .peer = peer,
      .peer_address = route->address,
      .geometry = transport::fifo_geometry(job_->fifo_options())};
  UNISONO_ASSIGN(auto connection, route->transport->connect(request));
  auto entry = std::make_unique<Entry>();
  entry->peer = peer;
  entry->channel = channel;
  entry->transport = route->transport;
  entry->connection = std::move(connection);
  const std::lock_guard lock(mutex_);
  // abort() may have run before this connection existed.
  if (aborted_) entry->connection->abort(fault_);
  all_.push_back(entry.get());
  by_peer_[peer].push_back(std::move(entry));
  return {};
}

bool Connections::is_time_real() const { return job_->sys_world().is_real(); }

void Connections::begin_making() {
  if (being_made_++ == 0) making_since_ns_ = job_->sys_world().now_ns();
}

void Connections::end_making() {
  if (--being_made_ == 0) connecting_ns_ += job_->sys_world().now_ns() - making_since_ns_;
}

Result<Connections::Entry*> Connections::ready_entry(int peer, int channel) {
  Entry* entry = find(peer, channel);
  if (entry == nullptr) {
    begin_making();
    UNISONO_TRY(make_entry(peer, channel));
    entry = find(peer, channel);
  }
  if (!entry->ready) {
    UNISONO_ASSIGN(entry->ready, entry->connection->ready());
    if (!entry->ready) return nullptr;
    end_making();
    if (entry->connection->host_link() != nullptr) ++mapped_;
  }
  return entry;
}

Result<transport::SendFifo*> Connections::send_fifo(int peer, int channel, Protocol protocol) {
  UNISONO_ASSIGN(Entry * entry, ready_entry(peer, channel));
  if (entry == nullptr) return nullptr;
  protocol = transport::carrier(*entry->connection, protocol);
  auto& fifo = entry->send[static_cast<std::size_t>(protocol)];
  if (!fifo) {
    begin_making();
    auto made =
        transport::make_send_fifo(*entry->connection, protocol, job_->fifo_options(), &clock_);
    end_making();
    count_traffic_of(*entry, protocol, made.get(), nullptr);
    const std::lock_guard lock(mutex_);  // report() looks at it
    fifo = std::move(made);
  }
  return fifo.get();
}

Result<transport::RecvFifo*> Connections::recv_fifo(int peer, int channel, Protocol protocol) {
  UNISONO_ASSIGN(Entry * entry, ready_entry(peer, channel));
  if (entry == nullptr) return nullptr;
  protocol = transport::carrier(*entry->connection, protocol);
  auto& fifo = entry->recv[static_cast<std::size_t>(protocol)];
  if (!fifo) {
    begin_making();
    UNISONO_ASSIGN(fifo,
                   transport::make_recv_fifo(*entry->connection, protocol, job_->fifo_options()));
    end_making();
    count_traffic_of(*entry, protocol, nullptr, fifo.get());
  }
  return fifo.get();
}

Result<transport::Connection*> Connections::connection(int peer, int channel) {
  UNISONO_ASSIGN(Entry * entry, ready_entry(peer, channel));
  return entry == nullptr ? nullptr : entry->connection.get();
}

Status Connections::progress() {
  if (mapped_ == all_.size()) return {};
  bool connecting = false;
  bool unmapped = false;
  bool silent = false;
  for (Entry* entry : all_) {
    connecting |= !entry->ready;
    if (!entry->ready || entry->connection->host_link() != nullptr) continue;
    unmapped = true;
    silent |= entry->transport->event_descriptor() < 0;
  }
  if (connecting)
    for (Entry* entry : all_)
      if (!entry->ready) UNISONO_TRY(entry->transport->progress());
  std::int64_t due_ns = INT64_MAX;
  if (unmapped) {
    // Relaxed, as below: who has slept otherwise looks again before it sleeps.
    const bool looks = must_look_.exchange(false, std::memory_order_relaxed) || looks_;
    const bool has_one_sleeper = job_->event_descriptors().size() == 1;
    for (Entry* entry : all_) {
      if (!entry->ready) continue;
      transport::Connection& connection = *entry->connection;
      UNISONO_TRY(looks ? connection.progress() : connection.progress_known());
      due_ns = std::min(due_ns, connection.next_due_ns());
      if (has_one_sleeper && connection.host_link() == nullptr)
        sleeper_.store(entry->transport, std::memory_order_relaxed);
    }
  }
  has_events_.store(unmapped && !silent, std::memory_order_relaxed);
  next_due_ns_.store(due_ns, std::memory_order_relaxed);
  return {};
}

// Messages through shared memory wake nobody, hence the bound.
void Connections::sleep(std::int64_t at_most_ns) {
  const std::int64_t due_ns = next_due_ns_.load(std::memory_order_relaxed);
  sys::World& world = job_->sys_world();
  const std::int64_t ns = std::clamp<std::int64_t>(due_ns - world.now_ns(), 0, at_most_ns);
  transport::Transport* const sleeper = sleeper_.load(std::memory_order_relaxed);
  if (has_events() && sleeper != nullptr && sleeper->sleep(ns)) return;
  must_look_.store(true, std::memory_order_relaxed);
  world.sleep(
      ns, has_events() ? std::span<const int>(job_->event_descriptors()) : std::span<const int>());
}

Status Connections::check_peer(int peer) {
  const auto found = by_peer_.find(peer);
  if (found == by_peer_.end()) return {};
  for (const auto& entry : found->second) UNISONO_TRY(entry->connection->check_peer());
  return {};
}

std::vector<int> Connections::unanswered() const {
  std::vector<int> out;
  for (const Entry* entry : all_)
    if (entry->connection->is_unanswered()) out.push_back(entry->peer);
  return out;
}

Status Connections::check_next() {
  if (all_.empty()) return {};
  next_checked_ = (next_checked_ + 1) % all_.size();
  return all_[next_checked_]->connection->progress();
}

void Connections::abort(transport::Fault fault) {
  const std::lock_guard lock(mutex_);
  if (aborted_) return;
  aborted_ = true;
  fault_ = fault;
  for (Entry* entry : all_) entry->connection->abort(fault);
}

Result<void*> Connections::scratch(std::size_t bytes) {
  if (bytes > scratch_bytes_) {
    constexpr std::size_t grain = 4096;
    const std::size_t rounded = (bytes + grain - 1) / grain * grain;
    scratch_.reset(std::aligned_alloc(64, rounded));
    scratch_bytes_ = scratch_ ? rounded : 0;
    if (!scratch_)
      return environment_error("no memory for ", rounded, " bytes of scratch on rank ", rank_);
  }
  return scratch_.get();
}

void Connections::close() {
  {
    const std::lock_guard lock(counted_mutex_);
    counted_.clear();
  }
  const std::lock_guard lock(mutex_);
  all_.clear();
  mapped_ = 0;
  being_made_ = 0;
  by_peer_.clear();
  scratch_.reset();
  scratch_bytes_ = 0;
}

void Connections::report(MemoryReport& report) const {
  const std::lock_guard lock(mutex_);
  report.scratch_bytes = scratch_bytes_;
  for (const Entry* entry : all_) {
    std::size_t bytes = sizeof *entry + entry->connection->memory_bytes();
    for (const auto& fifo : entry->send)
      if (fifo) bytes += fifo->memory_bytes();
    report.connections.push_back(
        {entry->peer, entry->channel, std::string(entry->transport->name()), bytes});
  }
}

void Connections::count_traffic_of(const Entry& entry, Protocol protocol,
                                   const transport::SendFifo* send,
                                   const transport::RecvFifo* recv) {
  const std::lock_guard lock(counted_mutex_);
  counted_.push_back({.connection = {.peer = entry.peer,
                                     .channel = entry.channel,
                                     .transport = std::string(entry.transport->name()),
                                     .protocol = protocol,
                                     .is_send = send != nullptr,
                                     .traffic = {}},
                      .send = send,
                      .recv = recv});
}

std::vector<trace::Connection> Connections::traffic() const {
  std::vector<trace::Connection> out;
  const std::lock_guard lock(counted_mutex_);
  for (const Counted& one : counted_) {
    const trace::Traffic traffic = one.send != nullptr ? one.send->traffic() : one.recv->traffic();
    if (traffic.posts == 0) continue;
    out.push_back(one.connection);
    out.back().traffic = traffic;
  }
  return out;
}

}  // namespace unisono::comm
