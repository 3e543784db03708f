// What ranks agree on before the first call: whose devices run calls, and which of them access each
// other's memory.

#include <algorithm>
#include <atomic>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/try.h"
#include "base/wire.h"
#include "comm/device/connections.h"
#include "engine/gpu/ll128_links.h"

namespace unisono::comm {
namespace {

constexpr std::size_t max_reason_bytes = 4096;

// Ranks that choose kernels by different rows would wait for each other without end.
Status check_same(int rank, std::string_view what, std::uint64_t theirs, std::uint64_t mine) {
  if (theirs == mine) return {};
  return misuse("rank ", rank, " chooses GPU kernels differently from this one: ", what,
                " differ. Give all ranks the same UNISONO_SELECTION_FILE and settings");
}

}  // namespace

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

Status DeviceConnections::reach_all(ControlGroup& group, const topo::Placement& placement) {
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
  writer.number(static_cast<std::uint8_t>(ll128_use_));
  UNISONO_ASSIGN(const RingUse ring_use, ring_use_from(job_->settings()));
  writer.number(static_cast<std::uint8_t>(ring_use));
  UNISONO_ASSIGN(const Gathered all,
                 group.all_gather(writer.bytes(), job_->bootstrap_timeout_ns()));
  std::string reason;
  if (!job_->settings().boolean(Setting::gpu_peer_access) && group.size() > 1)
    reason = "UNISONO_GPU_PEER_ACCESS is 0 there";
  std::string reason_on_node = reason;
  std::string why_no_ll128;
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
    const auto their_architecture = static_cast<int>(reader.number<std::uint32_t>());
    architecture = std::min(architecture, their_architecture);
    UNISONO_TRY(check_same(rank, "the rows of its path table and selection file",
                           reader.number<std::uint64_t>(), table_hash));
    UNISONO_TRY(check_same(rank, "its UNISONO_GPU_ZERO_COPY and UNISONO_GPU_ZERO_COPY_MIN_BYTES",
                           reader.number<std::uint64_t>(), zero_copy_min_bytes));
    UNISONO_TRY(check_same(rank, "its UNISONO_GPU_LL128", reader.number<std::uint8_t>(),
                           static_cast<std::uint8_t>(ll128_use_)));
    UNISONO_TRY(check_same(rank, "its UNISONO_GPU_RING_LINKS", reader.number<std::uint8_t>(),
                           static_cast<std::uint8_t>(ring_use)));
    const auto tell = [&](const auto&... why) {
      if (reason.empty()) reason = str(why...);
      if (reason_on_node.empty() && placement.same_node(rank, identity_.rank))
        reason_on_node = str(why...);
    };
    if (!job_->is_on_this_host(world_ranks_[static_cast<std::size_t>(rank)])) {
      tell("rank ", rank, " is on another host");
      continue;
    }
    const auto uuid = all[rank].first(theirs.bytes.size());
    std::ranges::copy(uuid, std::as_writable_bytes(std::span(theirs.bytes)).begin());
    ++sharing[std::string(reinterpret_cast<const char*>(uuid.data()), uuid.size())];
    if (rank < identity_.rank && theirs.bytes == device().uuid().bytes) ++index_on_device_;
    if (!device().can_access(theirs))
      tell("CUDA device ", device().ordinal(), " (", device().name(),
           ") cannot reach the memory of the device of rank ", rank);
    else if (why_no_ll128.empty())
      if (const std::string why = engine::gpu::why_no_ll128(
              device().compute_capability(), their_architecture, device().link_to(theirs));
          !why.empty())
        why_no_ll128 = str("between rank ", identity_.rank, " and rank ", rank, " ", why);
    if (version != driver_version)
      tell("its CUDA driver is ", driver_version, ", that of rank ", rank, " is ", version,
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
  UNISONO_TRY(agree_on_ll128(group, why_no_ll128));
  UNISONO_TRY(settle(group, placement, reason, reason_on_node));
  launches_->begin(LaunchOrder::of(device().ordinal(), index_on_device_), rings_.get());
  return {};
}

Status DeviceConnections::agree_on_ll128(ControlGroup& group, const std::string& why_not) const {
  // All ranks have the same setting.
  if (ll128_use_ == engine::gpu::Ll128Use::always) return {};
  if (ll128_use_ == engine::gpu::Ll128Use::never) {
    engine_->refuse_ll128(engine::gpu::why_no_ll128(ll128_use_));
    return {};
  }
  UNISONO_ASSIGN(const auto first, first_reason(group, why_not));
  if (first.second.empty()) return {};
  engine_->refuse_ll128(str(
      first.second, "; UNISONO_GPU_LL128=on uses LL128 where a link is known to keep them whole"));
  return {};
}

Status DeviceConnections::settle(ControlGroup& group, const topo::Placement& placement,
                                 const std::string& reason, const std::string& reason_on_node) {
  UNISONO_ASSIGN(const auto first, first_reason(group, reason));
  if (first.second.empty()) return {};
  const std::string because = str("rank ", first.first, " cannot access all GPUs: ", first.second);
  if (!job_->settings().boolean(Setting::staged))
    return environment_error(because,
                             ". UNISONO_STAGED=1 stages calls on CUDA streams through "
                             "host memory");
  UNISONO_ASSIGN(const auto first_on_node, first_reason(group, reason_on_node));
  is_mixed_ =
      first_on_node.second.empty() && placement.nodes() > 1 && placement.max_ranks_on_a_node() > 1;
  UNISONO_ASSIGN(const RingUse ring_use, ring_use_from(job_->settings()));
  if (ring_use == RingUse::always ||
      (ring_use == RingUse::where_measured && placement.max_ranks_on_a_node() == 1)) {
    engine_->use_rings(job_->settings().is_set(Setting::gpu_slot_bytes)
                           ? engine_->options().slot_bytes
                           : transport::ring::usual_slot_bytes);
    const engine::gpu::Options& options = engine_->options();
    rings_ = std::make_unique<RingLinks>(
        job_, engine_->shared_device(), identity_.rank, world_ranks_,
        transport::ring::Geometry{.slots = options.slots, .slot_bytes = options.slot_bytes});
    for (int rank = 0; rank < placement.ranks(); ++rank)
      is_ring_peer_.push_back(!is_mixed_ || !placement.same_node(rank, identity_.rank));
  }
  if (rings_)
    why_staged_ =
        str("Kernels exchange messages over ring links, which a thread forwards: ", because);
  else
    why_staged_ =
        str("Calls on CUDA streams are staged through host memory",
            is_mixed_ ? " between nodes, and inside them where their plan has no phase there" : "",
            ", which is slow: ", because);
  static std::atomic<bool> is_told{false};
  if (identity_.rank == 0 && !is_told.exchange(true))
    log(rings_ ? LogLevel::info : LogLevel::warn, why_staged_);
  return {};
}

}  // namespace unisono::comm
