// What executions of one rank of a GpuCluster are made on: its connections and its scratch memory.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "base/try.h"
#include "engine/gpu/link.h"
#include "engine/gpu/ll128_all_pairs.h"
#include "support/gpu_cluster.h"
#include "transport/nvlink/layout.h"

namespace unisono::test {

class GpuCluster::Resources : public engine::gpu::Resources, public engine::gpu::LaunchScope {
 public:
  Resources(GpuCluster& cluster, int rank, std::uint64_t communicator)
      : cluster_(cluster), rank_(rank), communicator_(communicator) {}

  engine::gpu::Engine& engine() override { return cluster_.engine(rank_); }
  Result<transport::Connection*> link(const Link& wanted) override {
    auto& connection = connections_[{wanted.peer, wanted.channel, wanted.protocol}];
    auto& transport = *cluster_.transports_[static_cast<std::size_t>(rank_)];
    if (!connection) {
      const std::string address =
          cluster_.transports_[static_cast<std::size_t>(wanted.peer)]->address();
      const auto key = static_cast<std::uint32_t>(wanted.channel * protocol_count) +
                       static_cast<std::uint32_t>(wanted.protocol);
      UNISONO_ASSIGN(connection,
                     transport.connect({.key = {communicator_, 0, key},
                                        .ranks = static_cast<int>(cluster_.transports_.size()),
                                        .self = rank_,
                                        .peer = wanted.peer,
                                        .peer_address = address,
                                        .geometry = wanted.geometry}));
      region_bytes_[{wanted.peer, wanted.channel, wanted.protocol}] = wanted.geometry.region_bytes;
    }
    UNISONO_ASSIGN(const bool ready, connection->ready());
    if (!ready) return nullptr;
    if (stored_.insert(connection.get()).second)
      UNISONO_TRY(engine::gpu::store_link(engine().device(), *connection, wanted.channel));
    return connection.get();
  }
  Status progress() override {
    return cluster_.transports_[static_cast<std::size_t>(rank_)]->progress();
  }
  void find_peer_mappings(const void* data, std::size_t bytes,
                          std::span<sys::cuda::DeviceAddress> by_rank) override {
    find_peer_mappings(data, bytes, by_rank, false);
  }
  void find_peer_mappings(const void* data, std::size_t,
                          std::span<sys::cuda::DeviceAddress> by_rank, bool) override {
    for (int peer = 0; peer < static_cast<int>(cluster_.transports_.size()); ++peer)
      if (cluster_.options_.sees(rank_, peer))
        by_rank[static_cast<std::size_t>(peer)] = reinterpret_cast<sys::cuda::DeviceAddress>(data);
  }
  bool has_used_slots() {
    for (const auto& [key, connection] : connections_) {
      const int channel = std::get<1>(key);
      const bool is_for_lines =
          channel >= engine::gpu::ll128_channel && channel <= engine::gpu::bulk_channel;
      const std::size_t offset =
          is_for_lines ? sizeof(device::Ll128Region) : transport::nvlink::slots_offset;
      if (std::ranges::any_of(region_from(*connection, offset, region_bytes_.at(key)), is_used))
        return true;
    }
    return false;
  }
  std::vector<bool> used_slots(int peer, int channel) {
    const engine::gpu::Options& options = engine().options();
    std::vector<bool> out(static_cast<std::size_t>(options.slots));
    const auto found = connections_.find({peer, channel, Protocol::simple});
    if (found == connections_.end()) return out;
    const auto slots = region_from(*found->second, transport::nvlink::slots_offset,
                                   region_bytes_.at(found->first));
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = std::ranges::any_of(
          std::span(slots).subspan(i * options.slot_bytes, options.slot_bytes), is_used);
    return out;
  }
  // All calls of a rank are on one stream.
  Result<engine::gpu::OpenLaunch> open(sys::cuda::StreamHandle*) override {
    fallback_ = trace::Fallback::none;
    ++launches_;
    return engine::gpu::OpenLaunch(*this);
  }
  std::uint64_t key() const override { return launches_; }
  void fall_back(trace::Fallback why, const trace::ChosenPath& instead) override {
    fallback_ = why;
    instead_ = instead;
  }
  // Of the last launch, as the host or its kernel told it.
  trace::Fallback fallback() {
    const bool is_told = std::ranges::count(engine().fallbacks(), launches_) > 0;
    return fallback_ == trace::Fallback::none && is_told ? trace::Fallback::peer : fallback_;
  }
  const trace::ChosenPath& instead() const { return instead_; }
  Status finish() override { return {}; }
  void close() override {}
  Status make_room(int blocks) override {
    thread_blocks_ = blocks;
    return {};
  }
  int thread_blocks() const { return thread_blocks_; }
  // What was given before is kept: calls may still use it, and freeing waits for all that runs on
  // the device, which may wait for this rank.
  Result<sys::cuda::DeviceAddress> scratch(std::size_t bytes) override {
    if (scratch_.empty() || scratch_.back().bytes() < bytes) {
      UNISONO_ASSIGN(auto memory, sys::cuda::Memory::allocate(engine().shared_device(), 2 * bytes));
      scratch_.push_back(std::move(memory));
    }
    return scratch_.back().address();
  }

 private:
  static bool is_used(std::byte byte) { return byte != std::byte{0}; }
  // A connection's own region without its beginning.
  std::vector<std::byte> region_from(const transport::Connection& connection, std::size_t offset,
                                     std::size_t end) {
    std::vector<std::byte> out(end - offset);
    const auto at = connection.device_link()->region + offset;
    const Status copied = engine().device().copy(
        reinterpret_cast<sys::cuda::DeviceAddress>(out.data()), at, out.size());
    if (!copied.ok()) throw std::runtime_error(copied.error().describe());
    return out;
  }

  GpuCluster& cluster_;
  int rank_;
  std::uint64_t communicator_;
  std::map<std::tuple<int, int, Protocol>, std::unique_ptr<transport::Connection>> connections_;
  std::map<std::tuple<int, int, Protocol>, std::size_t> region_bytes_;
  std::set<const transport::Connection*> stored_;
  std::vector<sys::cuda::Memory> scratch_;
  int thread_blocks_ = 0;
  std::uint64_t launches_ = 0;
  trace::Fallback fallback_ = trace::Fallback::none;
  trace::ChosenPath instead_;
};

}  // namespace unisono::test
