// Large calls by TMA bulk copies, on a small grid (device/kernels/tma_bulk.cuh).
#include "engine/gpu/tma_bulk.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/try.h"
#include "engine/gpu/ll128_all_pairs.h"
#include "engine/gpu/stream_queue.h"

namespace unisono::engine::gpu {
namespace {

using sys::cuda::address_of;
using sys::cuda::DeviceAddress;

// Tiles that a warp takes at once: enough that taking one more costs nothing and a warp stays
// within few pages, and few enough that the warps of a call end together.
constexpr std::int64_t most_tiles_of_run = 16;
constexpr std::int64_t least_runs_of_warp = 4;
// Up to so many tiles for each warp, a call gives them out in order: asking a counter would take
// longer than waiting for slow warps.
constexpr std::int64_t most_tiles_in_turn = 16;

void set_runs(device::BulkLaunch& launch) {
  const std::int64_t warps = std::int64_t{launch.blocks} * launch.warps;
  const std::int64_t tiles = launch.bytes / launch.tile_bytes / warps;
  const auto of_run = static_cast<std::int32_t>(
      std::clamp<std::int64_t>(tiles / least_runs_of_warp, 1, most_tiles_of_run));
  launch.run_bytes = of_run * launch.tile_bytes;
  launch.has_fixed_schedule = tiles <= most_tiles_in_turn ? 1 : 0;
}

// From this size on a copy is worth the events around it.
constexpr std::int64_t concurrent_copy_bytes = 4 << 20;

bool is_aligned(std::uint64_t at) { return at % device::unit_bytes == 0; }

}  // namespace

// No more warps than LL128 could use.
int bulk_warps(int ranks) {
  return std::min(device::bulk_max_warps, device::ll128_warps_of_block(ranks));
}

int bulk_most_stages(bool adds, int ranks, int tile_bytes) {
  const int tiles = static_cast<int>(device::bulk_shared_bytes) / bulk_warps(ranks) / tile_bytes;
  return std::min(adds ? (tiles - 1) / ranks : tiles, device::bulk_max_stages);
}

int bulk_least_stages(bool adds) { return adds ? 1 : device::bulk_stages_behind + 1; }

BulkStages bulk_stages(bool adds, int ranks, int slots, int chunk_bytes) {
  BulkStages out{.tile_bytes = chunk_bytes, .stages = slots};
  if (out.tile_bytes == 0)
    out.tile_bytes = !adds || ranks <= 2 ? 4 << 10 : ranks <= 4 ? 2 << 10 : 1 << 10;
  if (out.stages == 0) out.stages = bulk_most_stages(adds, ranks, out.tile_bytes);
  return out;
}

// Verified results have their chunks at the same place of each input and of each output, so one
// flow holds for all of a result's sources and destinations.
void Ll128AllPairs::find_bulk_flows() {
  const unsigned own = 1U << rank_;
  const auto add = [&](const plan::Chunks& source, const plan::Chunks& destination, int to) {
    const Span from(source, exchange_->chunks_per_block);
    const Span there(destination, exchange_->chunks_per_block);
    if (flows_.empty() || !(flows_.back().source == from && flows_.back().destination == there))
      flows_.push_back({from, there, 0});
    flows_.back().ranks |= 1U << to;
  };
  const auto gives = [this](int from, int to) {
    return exchange_->part(from).gives[static_cast<std::size_t>(to)];
  };
  const auto takes = [this](int rank, int from) {
    return exchange_->part(rank).takes[static_cast<std::size_t>(from)];
  };
  bulk_sources_ = exchange_->reduces ? (1U << ranks_) - 1 : own;
  if (sets_.adds != 0) {
    bulk_sources_ = sets_.adds;
    const plan::Chunks source = gives(own_part().adds.front(), rank_);
    if (!takes(rank_, rank_).empty()) add(source, takes(rank_, rank_), rank_);
    for (const int to : own_part().forwards) add(source, takes(to, rank_), to);
    return;
  }
  if (exchange_->reduces) return;
  if (exchange_->hops == 2) {
    // The segments of a root that keeps them follow each other.
    plan::Chunks source;
    plan::Chunks destination;
    for (int peer = 0; peer < ranks_; ++peer) {
      if ((sets_.local_copies & 1U << peer) == 0) continue;
      source = source.with(gives(rank_, peer));
      destination = destination.with(takes(rank_, peer));
    }
    if (!source.empty()) add(source, destination, rank_);
    return;
  }
  // Where one rank alone gives, and has a part of its own to copy, the others load theirs; else
  // each stores what it gives.
  const int giver = only_giver();
  if (giver >= 0 && giver != rank_ && !gives(giver, giver).empty()) {
    bulk_sources_ = 1U << giver;
    if (!gives(giver, rank_).empty()) add(gives(giver, rank_), takes(rank_, giver), rank_);
    return;
  }
  const bool pulls = giver == rank_ && !gives(rank_, rank_).empty();
  for (int distance = 1; distance <= ranks_; ++distance) {
    const int to = (rank_ + distance) % ranks_;
    if (!gives(rank_, to).empty() && (to == rank_ || !pulls))
      add(gives(rank_, to), takes(to, rank_), to);
  }
}

// The one rank that sends to others; -1 where there are several or none.
int Ll128AllPairs::only_giver() const {
  int giver = -1;
  for (int from = 0; from < ranks_; ++from)
    for (int to = 0; to < ranks_; ++to) {
      if (!exchange_->sends(from, to) || giver == from) continue;
      if (giver >= 0) return -1;
      giver = from;
    }
  return giver;
}

void Ll128AllPairs::set_flows(const Arguments& arguments, device::BulkLaunch& launch) const {
  const unsigned own = 1U << rank_;
  // What stays where it is is not copied.
  const bool keeps_nothing = bulk_sources_ == own && launch.lines.local_copies == 0;
  const Extents extents = this->extents(arguments);
  launch.bytes = longest_bytes(arguments);
  launch.sources = bulk_sources_;
  for (const Flow& flow : flows_) {
    const unsigned ranks = keeps_nothing ? flow.ranks & ~own : flow.ranks;
    if (ranks == 0) continue;
    const Extent source = extents(flow.source);
    launch.bytes = source.bytes;
    launch.flow[launch.flows++] = {source.offset, extents(flow.destination).offset, ranks};
  }
}

// Where all send, a rank's local copy costs its SMs as much as what it sends, and an SM stores some
// 52 GB/s: a copy engine does it meanwhile. A root's own copy takes
// no longer than the others' part, and beside them slows the links by a tenth.
Status Ll128AllPairs::copy_own_concurrently(StreamQueue& queue, const Arguments& arguments,
                                            device::BulkLaunch& launch) const {
  const unsigned own = 1U << rank_;
  if (exchange_->reduces || is_one_way() || launch.bytes < concurrent_copy_bytes) return {};
  const int flows = launch.flows;
  launch.flows = 0;
  for (int i = 0; i < flows; ++i) {
    device::BulkFlow flow = launch.flow[i];
    if ((flow.destinations & own) != 0)
      UNISONO_TRY(queue.copy_concurrently(
          address_of(arguments.output) + static_cast<DeviceAddress>(flow.destination),
          address_of(arguments.input) + static_cast<DeviceAddress>(flow.source),
          static_cast<std::size_t>(launch.bytes)));
    flow.destinations &= ~std::uint64_t{own};
    if (flow.destinations != 0) launch.flow[launch.flows++] = flow;
  }
  launch.lines.local_copies = 0;
  return {};
}

// Finds a buffer that others need in each rank's addresses: all must have mapped it, aligned.
trace::Fallback Ll128AllPairs::set_bulk_peer_buffers(
    LaunchScope& scope, const void* data, std::int64_t bytes,
    std::uint64_t (&views)[device::all_pairs_max_ranks]) const {
  std::array<DeviceAddress, device::all_pairs_max_ranks> found{};
  scope.find_peer_mappings(data, static_cast<std::size_t>(bytes), found);
  found[static_cast<std::size_t>(rank_)] = address_of(data);
  for (int rank = 0; rank < ranks_; ++rank) {
    const DeviceAddress view = found[static_cast<std::size_t>(rank)];
    if (view == 0) return trace::Fallback::not_mapped;
    if (!is_aligned(view)) return trace::Fallback::not_aligned;
    views[rank] = view;
  }
  return trace::Fallback::none;
}

// Why some rank cannot copy what it needs of this one.
trace::Fallback Ll128AllPairs::set_bulk_buffers(const Engine& engine, LaunchScope& scope,
                                                const Arguments& arguments,
                                                device::BulkLaunch& launch) const {
  const std::int64_t block = block_bytes(arguments);
  using enum trace::Fallback;
  if (!engine.copies_by_tma()) return no_tma;
  if (overwrites_) return overlap;
  for (int i = 0; i < launch.flows; ++i)
    if (!is_aligned(static_cast<std::uint64_t>(launch.flow[i].source)) ||
        !is_aligned(static_cast<std::uint64_t>(launch.flow[i].destination)))
      return not_aligned;
  std::ranges::fill(launch.outputs, device::bulk_no_buffer);
  if (input_blocks_ > 0)
    if (const trace::Fallback why =
            set_bulk_peer_buffers(scope, arguments.input, block * input_blocks_, launch.inputs);
        why != none)
      return why;
  if (output_blocks_ == 0) return none;
  return set_bulk_peer_buffers(scope, arguments.output, block * output_blocks_, launch.outputs);
}

Status Ll128AllPairs::launch_in_bulk(const Engine& engine, LaunchScope& scope,
                                     const Arguments& arguments,
                                     const device::Ll128Launch& lines) const {
  device::BulkLaunch launch{};
  launch.lines = lines;
  launch.blocks = arguments.path.thread_blocks;
  // As many as LL128 takes, so that a call that cannot use TMA bulk copies is no slower.
  launch.all_blocks = arguments.options.at_most(device::ll128_max_blocks);
  set_flows(arguments, launch);
  const trace::Fallback why = set_bulk_buffers(engine, scope, arguments, launch);
  const bool is_reached = why == trace::Fallback::none;
  if (!is_reached) {
    std::ranges::fill(launch.outputs, 0);
    scope.fall_back(why, ll128_fallback(launch.all_blocks));
  }
  auto* stream = static_cast<sys::cuda::StreamHandle*>(arguments.stream());
  const sys::cuda::Current current(engine.device());
  int capturing = 0;
  UNISONO_TRY(engine.device().check(
      engine.device().driver().stream_is_capturing(stream, &capturing), "looking at a stream"));
  UNISONO_ASSIGN(const CopyLinks::Fork* fork, engine.copy_links().fork(capturing != 0));
  StreamQueue queue(engine.device(), engine.copy_links(), stream, fork, /*counts=*/false,
                    arguments.timeout_ns());
  UNISONO_TRY(copy_own_concurrently(queue, arguments, launch));
  launch.tile_bytes = static_cast<std::int32_t>(arguments.path.chunk_bytes);
  launch.stages = arguments.path.slots;
  launch.warps = bulk_warps(ranks_);
  set_runs(launch);
  // Sums of more than two ranks on a small grid have one kernel.
  const device::DataKind data =
      is_reduction(collective_) && ranks_ > 2 ? device::DataKind::any : kind_of_data(launch.lines);
  stand_by_distance(launch.lines);
  const int blocks = is_reached ? launch.blocks : launch.all_blocks;
  UNISONO_TRY(scope.make_room(blocks));
  void* parameters[] = {&launch};
  const auto result = engine.bulk(data, ranks_)
                          .launch(static_cast<unsigned>(blocks),
                                  static_cast<unsigned>(32 * device::ll128_warps_of_block(ranks_)),
                                  stream, parameters);
  UNISONO_TRY(engine.device().check(result, "launching TMA bulk copies"));
  return queue.finish();
}

}  // namespace unisono::engine::gpu
