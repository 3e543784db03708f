#include "engine/gpu/ll128_all_pairs.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/try.h"
#include "engine/gpu/tma_bulk.h"
#include "transport/nvlink/layout.h"

namespace unisono::engine::gpu {
namespace {

using sys::cuda::address_of;
using sys::cuda::DeviceAddress;

// Calls in which some send to ranks of which they hear nothing have their own.
constexpr int ll128_mutual = ll128_channel;
constexpr int ll128_one_way = ll128_channel + 1;

static_assert(sizeof(device::Ll128Region::begin) == transport::nvlink::slots_offset);

std::uint8_t bits(unsigned ranks) { return static_cast<std::uint8_t>(ranks); }

}  // namespace

int ll128_hops(const plan::Exchange& exchange) {
  if (!is_carried(exchange) || (exchange.reduces && !adds_own_first(exchange))) return 0;
  if (exchange.hops == 1 && !exchange.has_whole_blocks()) return 0;
  // In place, nobody's sum may come where another still reads.
  const bool is_shared_out = exchange.hops == 2 || exchange.reduces;
  return !is_shared_out || exchange.has_segments() ? exchange.hops : 0;
}

trace::ChosenPath ll128_path(const PathChoice& chosen, std::int64_t longest, int ranks, bool adds,
                             const CallOptions& options) {
  trace::ChosenPath out{.variant = chosen.path, .thread_blocks = chosen.thread_blocks};
  if (chosen.path == Path::tma_bulk) {
    const BulkStages stages = bulk_stages(adds, ranks, chosen.slots, chosen.chunk_bytes);
    out.slots = stages.stages;
    out.chunk_bytes = static_cast<std::uint32_t>(stages.tile_bytes);
    return out;
  }
  // A group of lines a block, until all are there; then more warps.
  constexpr auto payload = static_cast<std::int64_t>(device::ll128_group_payload);
  const int most =
      options.at_most(chosen.thread_blocks > 0 ? chosen.thread_blocks : device::ll128_max_blocks);
  out.thread_blocks =
      static_cast<int>(std::clamp<std::int64_t>((longest + payload - 1) / payload, 1, most));
  if (chosen.path != Path::ll128_all_pairs) return out;
  out.slots = device::ll128_slots;
  out.chunk_bytes = device::ll128_group_payload;
  return out;
}

trace::ChosenPath ll128_fallback(int thread_blocks) {
  return {.variant = Path::ll128_all_pairs,
          .thread_blocks = thread_blocks,
          .slots = device::ll128_slots,
          .chunk_bytes = device::ll128_group_payload};
}

Ll128AllPairs::Ll128AllPairs(const plan::Header& header, int rank,
                             std::shared_ptr<const plan::Exchange> exchange)
    : SpecialisedKernel(header, rank, std::move(exchange)),
      overwrites_(header.in_place && own_part().overwrites_in_place) {
  plan::Header out_of_place = header;
  out_of_place.in_place = false;
  input_blocks_ = plan::input_blocks_of(out_of_place, rank);
  output_blocks_ = plan::output_blocks_of(out_of_place, rank);
  find_sets();
  find_bulk_flows();
}

std::unique_ptr<SpecialisedKernel> Ll128AllPairs::make(
    const plan::Header& header, int rank, std::shared_ptr<const plan::Exchange> exchange) {
  return ll128_hops(*exchange) > 0 ? std::unique_ptr<SpecialisedKernel>(
                                         new Ll128AllPairs(header, rank, std::move(exchange)))
                                   : nullptr;
}

void Ll128AllPairs::find_sets() {
  for (const int rank : own_part().adds) sets_.adds |= 1U << rank;
  for (const int rank : own_part().forwards) sets_.forwards |= 1U << rank;
  for (int peer = 0; peer < ranks_; ++peer) {
    const bool is_own = peer == rank_;
    if (!is_own && !gives(peer).empty()) sets_.sends |= 1U << peer;
    if (takes(peer).empty() || (is_own && sets_.adds != 0)) continue;
    const auto& forwards = exchange_->part(peer).forwards;
    const bool comes = exchange_->hops == 1 ? !is_own : std::ranges::count(forwards, rank_) > 0;
    (comes ? sets_.receives : sets_.local_copies) |= 1U << peer;
  }
}

PathChoice Ll128AllPairs::choose(const Engine& engine, const Arguments& arguments) const {
  // Who adds by bulk copies knows its own factor only.
  if (is_reduction(collective_) && arguments.operation == ReduceOperation::pre_multiplied_sum)
    return {};
  return engine.paths().find({.collective = collective_,
                              .ranks = ranks_,
                              .hops = exchange_->hops,
                              .longest = static_cast<std::uint64_t>(longest_bytes(arguments)),
                              .options = arguments.options});
}

int Ll128AllPairs::channel(const Arguments& arguments) const {
  switch (arguments.path.variant) {
    case Path::zero_copy:
      return ll128_one_way;
    case Path::tma_bulk:
      // Few thread blocks have regions of their own.
      return arguments.options.allows(device::bulk_max_blocks + 1) ? ll128_one_way : bulk_channel;
    default:
      return is_one_way() ? ll128_one_way : ll128_mutual;
  }
}

transport::Geometry Ll128AllPairs::geometry(int channel) const {
  const int blocks = channel == bulk_channel ? device::bulk_max_blocks : device::ll128_max_blocks;
  const std::size_t bytes = device::ll128_slots_bytes(ranks_, blocks);
  return {.region_bytes = sizeof(device::Ll128Region) + bytes,
          .signals = transport::nvlink::signal_count,
          .layout = bytes};
}

void Ll128AllPairs::set_buffers(const Arguments& arguments, device::Ll128Launch& launch) const {
  set_peers(arguments, 0, launch);
  launch.longest = longest_bytes(arguments);
  launch.sends = bits(sets_.sends);
  launch.local_copies = bits(sets_.local_copies);
  launch.reduce_sources = bits(sets_.adds);
  launch.forwards = bits(sets_.forwards);
  launch.receives = bits(sets_.receives);
}

// Where the others reach what they are to store here; and why some do not.
trace::Fallback Ll128AllPairs::set_peer_buffers(LaunchScope& scope, const Arguments& arguments,
                                                device::Ll128Launch& launch) const {
  if (launch.receives == 0) return trace::Fallback::none;
  if (overwrites_) return trace::Fallback::overlap;
  const DeviceAddress output = address_of(arguments.output);
  std::array<DeviceAddress, device::all_pairs_max_ranks> views{};
  scope.find_peer_mappings(
      arguments.output, static_cast<std::size_t>(block_bytes(arguments) * output_blocks_), views);
  trace::Fallback why = trace::Fallback::none;
  for (int peer = 0; peer < ranks_; ++peer) {
    const DeviceAddress view = views[static_cast<std::size_t>(peer)];
    if ((launch.receives >> peer & 1U) == 0) continue;
    const std::uint64_t wanted = view + (launch.peers[peer].destination - output);
    if (view == 0)
      why = trace::Fallback::not_mapped;
    else if (wanted % device::address_alignment != 0)
      why = trace::Fallback::not_aligned;
    else
      launch.peers[peer].view = wanted;
  }
  return why;
}

// What stood by rank: this one first.
void Ll128AllPairs::stand_by_distance(device::Ll128Launch& launch) const {
  std::rotate(launch.peers, launch.peers + rank_, launch.peers + ranks_);
  for (std::uint8_t* ranks : {&launch.sends, &launch.local_copies, &launch.reduce_sources,
                              &launch.forwards, &launch.receives})
    *ranks = bits((*ranks >> rank_ | *ranks << (ranks_ - rank_)) & ((1U << ranks_) - 1));
}

device::DataKind Ll128AllPairs::kind_of_data(const device::Ll128Launch& launch) const {
  std::uint64_t all = 0;
  for (const device::Ll128Peer& peer : launch.peers)
    all |= peer.source | peer.destination | static_cast<std::uint64_t>(peer.bytes);
  return data_kind(all, device::unit_bytes, ranks_, is_reduction(collective_), launch.arithmetic);
}

void Ll128AllPairs::prepare(const Engine& engine, LaunchScope& scope, const Arguments& arguments,
                            const device::Arithmetic& arithmetic) {
  device::Ll128Launch& launch = launch_ = {};
  launch.arithmetic = arithmetic;
  launch.rank = static_cast<std::int8_t>(rank_);
  launch.ranks = static_cast<std::int8_t>(ranks_);
  launch.tag = call_tag(arguments.call);
  launch.hops = static_cast<std::uint8_t>(exchange_->hops);
  const Path path = arguments.path.variant;
  launch.signals = is_one_way() || path != Path::ll128_all_pairs;
  set_buffers(arguments, launch);
  // What stays where it is need not be stored.
  for (int peer = 0; peer < ranks_; ++peer)
    if (launch.peers[peer].destination == 0 ||
        launch.peers[peer].source == launch.peers[peer].destination)
      launch.local_copies = bits(launch.local_copies & ~(1U << peer));
  if (path != Path::ll128_all_pairs) launch.key = scope.key();
  if (path == Path::zero_copy)
    if (const trace::Fallback why = set_peer_buffers(scope, arguments, launch);
        why != trace::Fallback::none)
      scope.fall_back(why, ll128_fallback(arguments.path.thread_blocks));
  for (int peer = 0; peer < ranks_; ++peer) {
    const transport::Connection* link = links()[static_cast<std::size_t>(peer)];
    if (link == nullptr) continue;
    launch.peers[peer].out = link->device_link()->peer_region;
    launch.peers[peer].in = link->device_link()->region;
    if (launch.states == 0) launch.states = launch.peers[peer].in;
  }
  if (path == Path::ll128_all_pairs) stand_by_distance(launch);
  launch.mailbox = engine.mailbox_address();
  launch.timeout_ns = arguments.timeout_ns();
  if (path == Path::tma_bulk) return;
  constexpr auto payload = static_cast<std::int64_t>(device::ll128_group_payload);
  const std::int64_t groups = (launch.longest + payload - 1) / payload;
  const std::int64_t blocks = arguments.path.thread_blocks;
  const std::int64_t warps =
      std::min<std::int64_t>((groups + blocks - 1) / blocks, device::ll128_warps_of_block(ranks_));
  launch.spreads = collective_ != Collective::gather && blocks >= ranks_ - 1;
  threads_ = static_cast<unsigned>(32 * warps);
  kernel_ = path == Path::zero_copy ? &engine.zero_copy(ranks_)
                                    : &engine.ll128(kind_of_data(launch), ranks_);
}

Status Ll128AllPairs::launch(const Engine& engine, LaunchScope& scope, const Arguments& arguments,
                             const device::Arithmetic& arithmetic, const device::Stamp& stamp,
                             bool is_repeated) {
  // What peers reach may be more than it was.
  if (!is_repeated || arguments.path.variant != Path::ll128_all_pairs)
    prepare(engine, scope, arguments, arithmetic);
  launch_.stamp = stamp;
  if (arguments.path.variant == Path::tma_bulk)
    return launch_in_bulk(engine, scope, arguments, launch_);
  const int blocks = arguments.path.thread_blocks;
  auto* stream = static_cast<sys::cuda::StreamHandle*>(arguments.stream());
  UNISONO_TRY(scope.make_room(blocks));
  void* parameters[] = {&launch_};
  const auto result = kernel_->launch(static_cast<unsigned>(blocks), threads_, stream, parameters);
  return engine.device().check(result, "launching an LL128 all-pairs kernel");
}

}  // namespace unisono::engine::gpu
