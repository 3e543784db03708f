// Large calls that few thread blocks serve, in bulk copies (device/kernels/bulk.cuh).
#include "engine/gpu/lines.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace unisono::engine::gpu {
namespace {

using sys::cuda::address_of;
using sys::cuda::DeviceAddress;

// How a block's shared memory is divided: each warp has stages of its own, each of a tile of every
// source.
struct Stages {
  int warps;
  int tile_bytes;
  int stages;
};
Stages stages_of(bool adds, int ranks) {
  if (!adds) return {.warps = 2, .tile_bytes = 8 << 10, .stages = 12};
  const int tile_bytes = ranks <= 4 ? 2 << 10 : 1 << 10;
  const int warps = 6;
  const auto of_warp = static_cast<int>(device::bulk_shared_bytes) / warps;
  return {.warps = warps,
          .tile_bytes = tile_bytes,
          .stages = std::min(of_warp / (tile_bytes * ranks), device::bulk_max_stages)};
}

bool is_aligned(std::uint64_t at) { return at % device::unit_bytes == 0; }

}  // namespace

// Which of the own input, or of all inputs, goes where.
void Lines::set_flows(const Arguments& arguments, device::BulkLaunch& launch) const {
  const bool is_root = rank_ == root_;
  const std::int64_t block = block_bytes(arguments);
  const unsigned own = 1U << rank_;
  const unsigned root = 1U << root_;
  const unsigned kept = launch.lines.keeps & own;
  const std::int64_t own_block = rank_ * block;
  const auto add = [&launch](std::int64_t source, std::int64_t destination, unsigned ranks) {
    if (ranks != 0) launch.flow[launch.flows++] = {source, destination, ranks};
  };
  launch.bytes = block;
  launch.sources = is_reduction(collective_) ? others() | own : own;
  if (hops_ == 2) {
    const int parts = segments_of_block();
    const plan::ChunkLayout layout = segments(arguments, parts);
    const auto size = static_cast<std::int64_t>(size_bytes(arguments.type));
    const int part = parts == ranks_ ? rank_ : (rank_ - root_ - 1 + ranks_) % ranks_;
    const bool is_broadcast = collective_ == Collective::broadcast;
    if (is_broadcast && is_root) {
      if (launch.lines.keeps != 0) add(0, 0, own);
      return;
    }
    if (part >= parts) return;
    launch.bytes = (layout.end(part) - layout.begin(part)) * size;
    if (is_broadcast) launch.sources = root;
    const unsigned all = others() | own;
    const unsigned to = is_broadcast ? all & ~root : collective_ == Collective::reduce ? root : all;
    add(layout.begin(part) * size, layout.begin(part) * size, to);
    return;
  }
  switch (collective_) {
    case Collective::all_gather:
      return add(0, own_block, others() | kept);
    case Collective::reduce_scatter:
      return add(own_block, 0, own);
    case Collective::gather:
      return add(0, own_block, is_root ? kept : root);
    default:  // all_to_all, scatter
      if (collective_ == Collective::scatter && !is_root) return;
      for (int distance = 1; distance <= ranks_; ++distance) {
        const int rank = (rank_ + distance) % ranks_;
        add(rank * block, collective_ == Collective::scatter ? 0 : own_block,
            rank == rank_ ? kept : 1U << rank);
      }
  }
}

// Of a buffer that others need, in each rank's addresses. False unless all reach it, aligned.
bool Lines::set_bulk_views(Resources& resources, const void* data, std::int64_t bytes,
                           std::uint64_t (&views)[device::direct_max_ranks]) const {
  std::array<DeviceAddress, device::direct_max_ranks> found{};
  resources.find_views(data, static_cast<std::size_t>(bytes), found);
  found[static_cast<std::size_t>(rank_)] = address_of(data);
  for (int rank = 0; rank < ranks_; ++rank) {
    const DeviceAddress view = found[static_cast<std::size_t>(rank)];
    if (view == 0 || !is_aligned(view)) return false;
    views[rank] = view;
  }
  return true;
}

// False: some rank does not reach what it needs of this one, or it is not aligned.
bool Lines::set_buffers(Resources& resources, const Arguments& arguments,
                        device::BulkLaunch& launch) const {
  const std::int64_t block = block_bytes(arguments);
  // What comes there must not come before what is there has gone.
  if (collective_ == Collective::all_to_all && arguments.input == arguments.output) return false;
  for (int i = 0; i < launch.flows; ++i)
    if (!is_aligned(static_cast<std::uint64_t>(launch.flow[i].source)) ||
        !is_aligned(static_cast<std::uint64_t>(launch.flow[i].destination)))
      return false;
  std::ranges::fill(launch.outputs, device::bulk_no_buffer);
  if (input_blocks_ > 0 &&
      !set_bulk_views(resources, arguments.input, block * input_blocks_, launch.inputs))
    return false;
  return output_blocks_ == 0 ||
         set_bulk_views(resources, arguments.output, block * output_blocks_, launch.outputs);
}

Status Lines::launch_in_bulk(Resources& resources, const Arguments& arguments,
                             const device::LinesLaunch& lines) const {
  const Engine& engine = resources.engine();
  device::BulkLaunch launch{};
  launch.lines = lines;
  set_flows(arguments, launch);
  const sys::cuda::Kernel& kernel = engine.bulk(ranks_);
  if (kernel.shared_bytes() == 0 || !set_buffers(resources, arguments, launch))
    std::ranges::fill(launch.outputs, 0);
  const Stages stages = stages_of(is_reduction(collective_), ranks_);
  launch.tile_bytes = stages.tile_bytes;
  launch.stages = stages.stages;
  void* parameters[] = {&launch};
  const auto result =
      kernel.launch(static_cast<unsigned>(most_blocks(arguments, device::bulk_max_blocks)),
                    static_cast<unsigned>(32 * stages.warps),
                    static_cast<sys::cuda::StreamHandle*>(arguments.stream), parameters);
  return engine.device().check(result, "launching bulk copies");
}

}  // namespace unisono::engine::gpu
