#include "engine/gpu/lines.h"

#include <algorithm>
#include <array>

#include "algorithm/algorithms.h"
#include "base/error.h"
#include "base/try.h"
#include "transport/nvlink/layout.h"

namespace unisono::engine::gpu {
namespace {

using sys::cuda::address_of;
using sys::cuda::DeviceAddress;

// What the kernels do: the plans of these algorithms.
struct Carried {
  const algorithm::Entry* plan;
  int hops;
  int most_ranks = device::direct_max_ranks;
};
// Of up to four ranks all are children of the root.
constexpr int star_ranks = 4;
constexpr Carried carried[] = {
    {&algorithm::direct_all_gather, 1},
    {&algorithm::direct_reduce_scatter, 1},
    {&algorithm::direct_all_to_all, 1},
    {&algorithm::knomial_reduce, 1, star_ranks},
    {&algorithm::knomial_gather, 1, star_ranks},
    {&algorithm::knomial_scatter, 1, star_ranks},
    {&algorithm::all_pairs_two_shot_all_reduce, 2},
    {&algorithm::two_shot_broadcast, 2},
    {&algorithm::two_shot_reduce, 2},
};

// Calls in which some send to ranks of which they hear nothing have their own.
constexpr int mutual_lines = lines_channel;
constexpr int one_way_lines = lines_channel + 1;

static_assert(sizeof(device::LinesRegion::begin) == transport::nvlink::slots_offset);

std::uint8_t bits(unsigned ranks) { return static_cast<std::uint8_t>(ranks); }

}  // namespace

int lines_hops(const algorithm::Entry& reference, int ranks) {
  for (const Carried& one : carried)
    if (one.plan == &reference && 2 <= ranks && ranks <= one.most_ranks) return one.hops;
  return 0;
}

// Those have regions of their own, for few thread blocks.
bool is_bounded(int max_sms) { return max_sms > 0 && max_sms <= device::bulk_max_blocks; }

int lines_blocks(std::int64_t longest, int most) {
  constexpr auto payload = static_cast<std::int64_t>(device::lines_group_payload);
  return static_cast<int>(std::clamp<std::int64_t>((longest + payload - 1) / payload, 1, most));
}

Lines::Lines(const plan::Header& header, int rank, int hops) : ByHand(header, rank), hops_(hops) {
  plan::Header out_of_place = header;
  out_of_place.in_place = false;
  input_blocks_ = plan::input_blocks_of(out_of_place, rank);
  output_blocks_ = plan::output_blocks_of(out_of_place, rank);
}

std::unique_ptr<ByHand> Lines::make(const plan::Header& header, int rank,
                                    const algorithm::Entry& reference) {
  const int hops = lines_hops(reference, header.ranks);
  return hops > 0 ? std::unique_ptr<ByHand>(new Lines(header, rank, hops)) : nullptr;
}

bool Lines::is_one_way() const {
  return has_root(collective_) && (collective_ != Collective::reduce || hops_ == 1);
}

std::int64_t Lines::longest_bytes(const Arguments& arguments) const {
  if (hops_ == 1) return block_bytes(arguments);
  return segments(arguments, segments_of_block()).chunk_elements *
         static_cast<std::int64_t>(size_bytes(arguments.type));
}

PathChoice Lines::choose(const Engine& engine, const Arguments& arguments) const {
  // Who adds by bulk copies knows its own factor only.
  if (is_reduction(collective_) && arguments.operation == ReduceOperation::pre_multiplied_sum)
    return {};
  return engine.paths().find({.collective = collective_,
                              .ranks = ranks_,
                              .hops = hops_,
                              .longest = static_cast<std::uint64_t>(longest_bytes(arguments)),
                              .max_sms = arguments.max_sms,
                              .overlaps = arguments.leaves_room});
}

int Lines::channel(const Engine&, const Arguments& arguments) const {
  switch (chosen_.path) {
    case Path::zero_copy:
      return one_way_lines;
    case Path::tma_bulk:
      return is_bounded(arguments.max_sms) ? bulk_channel : one_way_lines;
    default:
      return is_one_way() ? one_way_lines : mutual_lines;
  }
}

transport::Geometry Lines::geometry(int channel) const {
  const int blocks = channel == bulk_channel ? device::bulk_max_blocks : device::lines_max_blocks;
  const std::size_t bytes = device::lines_slots_bytes(ranks_, blocks);
  return {.region_bytes = sizeof(device::LinesRegion) + bytes,
          .signals = transport::nvlink::signal_count,
          .layout = bytes};
}

// Blocks, whole, straight to where they belong or are added.
void Lines::set_one_hop(const Arguments& arguments, device::LinesLaunch& launch) const {
  const DeviceAddress input = address_of(arguments.input);
  const DeviceAddress output = address_of(arguments.output);
  const unsigned own = 1U << rank_;
  const bool sends_blocks = collective_ == Collective::reduce_scatter ||
                            collective_ == Collective::all_to_all ||
                            collective_ == Collective::scatter;
  const bool takes_blocks = collective_ == Collective::all_gather ||
                            collective_ == Collective::all_to_all ||
                            collective_ == Collective::gather;
  launch.longest = block_bytes(arguments);
  for (int peer = 0; peer < ranks_; ++peer) {
    const auto at = static_cast<std::uint64_t>(peer) * static_cast<std::uint64_t>(launch.longest);
    launch.peers[peer].source = input + (sends_blocks ? at : 0);
    launch.peers[peer].destination = output + (takes_blocks ? at : 0);
    launch.peers[peer].bytes = launch.longest;
  }
  launch.sources_differ = sends_blocks;
  const bool is_root = rank_ == root_;
  const unsigned root = 1U << root_;
  launch.sends = bits(others());
  launch.takes = bits(others());
  launch.keeps = bits(own);
  if (is_reduction(collective_)) {
    const bool hears = collective_ == Collective::reduce_scatter || is_root;
    launch.hears = hears ? bits(others() | own) : 0;
    launch.takes = launch.keeps = 0;
    if (collective_ == Collective::reduce) launch.sends = is_root ? 0 : bits(root);
  } else if (collective_ == Collective::gather && !is_root) {
    launch.sends = bits(root);
    launch.takes = launch.keeps = 0;
  } else if (collective_ == Collective::gather) {
    launch.sends = 0;
  } else if (collective_ == Collective::scatter && !is_root) {
    launch.takes = bits(root);
    launch.sends = launch.keeps = 0;
  } else if (collective_ == Collective::scatter) {
    launch.takes = 0;
  }
}

// Each rank's part of the block: the plan's chunks, of all ranks or of all but the root.
void Lines::set_segments(const Arguments& arguments, device::LinesLaunch& launch) const {
  const bool has_root = collective_ != Collective::all_reduce;
  const int count = segments_of_block();
  const plan::ChunkLayout layout = segments(arguments, count);
  const auto size = static_cast<std::int64_t>(size_bytes(arguments.type));
  launch.longest = longest_bytes(arguments);
  for (int i = 0; i < count; ++i) {
    device::LinesPeer& peer = launch.peers[has_root ? (root_ + 1 + i) % ranks_ : i];
    const auto begin = static_cast<std::uint64_t>(layout.begin(i) * size);
    peer.bytes = (layout.end(i) - layout.begin(i)) * size;
    if (arguments.input != nullptr) peer.source = address_of(arguments.input) + begin;
    if (arguments.output != nullptr) peer.destination = address_of(arguments.output) + begin;
  }
}

void Lines::set_two_hops(const Arguments& arguments, device::LinesLaunch& launch) const {
  set_segments(arguments, launch);
  launch.sources_differ = 1;
  const unsigned own = 1U << rank_;
  const unsigned root = 1U << root_;
  const bool is_root = rank_ == root_;
  switch (collective_) {
    case Collective::broadcast:
      if (is_root) {
        launch.sends = bits(others());
        launch.keeps = launch.sends;
      } else {
        launch.hears = bits(root);
        launch.forwards = launch.takes = bits(others() & ~root);
      }
      return;
    case Collective::reduce:
      launch.sends = bits(others() & ~root);
      if (is_root) {
        launch.takes = bits(others());
      } else {
        launch.hears = bits(others() | own);
        launch.forwards = bits(root);
        launch.peers[rank_].destination = 0;
      }
      return;
    default:
      launch.sends = launch.forwards = launch.takes = bits(others());
      launch.hears = bits(others() | own);
  }
}

// Where the others reach what they are to store here.
void Lines::set_views(Resources& resources, const Arguments& arguments,
                      device::LinesLaunch& launch) const {
  if (launch.takes == 0) return;
  // What comes there must not come before what is there has gone.
  if (collective_ == Collective::all_to_all && arguments.input == arguments.output) return;
  const DeviceAddress output = address_of(arguments.output);
  const bool is_scattered = collective_ == Collective::scatter;
  std::array<DeviceAddress, device::direct_max_ranks> views{};
  resources.find_views(arguments.output,
                       static_cast<std::size_t>(launch.longest * (is_scattered ? 1 : ranks_)),
                       views);
  for (int peer = 0; peer < ranks_; ++peer) {
    const DeviceAddress view = views[static_cast<std::size_t>(peer)];
    if (view == 0) continue;
    const std::uint64_t wanted = view + (launch.peers[peer].destination - output);
    if (wanted % device::post_alignment == 0) launch.peers[peer].view = wanted;
  }
}

// What stood by rank: this one first.
void Lines::stand_by_distance(device::LinesLaunch& launch) const {
  std::rotate(launch.peers, launch.peers + rank_, launch.peers + ranks_);
  for (std::uint8_t* ranks :
       {&launch.sends, &launch.keeps, &launch.hears, &launch.forwards, &launch.takes})
    *ranks = bits((*ranks >> rank_ | *ranks << (ranks_ - rank_)) & ((1U << ranks_) - 1));
}

device::DataKind Lines::kind_of_data(const device::LinesLaunch& launch) const {
  std::uint64_t all = 0;
  for (const device::LinesPeer& peer : launch.peers)
    all |= peer.source | peer.destination | static_cast<std::uint64_t>(peer.bytes);
  return data_kind(all, device::unit_bytes, ranks_, is_reduction(collective_), launch.arithmetic);
}

Status Lines::launch(Resources& resources, const Arguments& arguments,
                     const device::Arithmetic& arithmetic) const {
  const Engine& engine = resources.engine();
  device::LinesLaunch launch{};
  launch.arithmetic = arithmetic;
  launch.rank = static_cast<std::int16_t>(rank_);
  launch.ranks = static_cast<std::int16_t>(ranks_);
  launch.hops = static_cast<std::uint8_t>(hops_);
  const Path path = chosen_.path;
  launch.tells = is_one_way() || path != Path::ll128_all_pairs;
  if (hops_ == 1)
    set_one_hop(arguments, launch);
  else
    set_two_hops(arguments, launch);
  // What stays where it is need not be stored.
  for (int peer = 0; peer < ranks_; ++peer)
    if (launch.peers[peer].destination == 0 ||
        launch.peers[peer].source == launch.peers[peer].destination)
      launch.keeps = bits(launch.keeps & ~(1U << peer));
  if (path == Path::zero_copy) set_views(resources, arguments, launch);
  const auto& connections = links(channel(engine, arguments));
  for (int peer = 0; peer < ranks_; ++peer) {
    const transport::Connection* link = connections[static_cast<std::size_t>(peer)];
    if (link == nullptr) continue;
    launch.peers[peer].out = address_of(link->peer_region());
    launch.peers[peer].in = address_of(link->region());
    if (launch.states == 0) launch.states = launch.peers[peer].in;
  }
  if (path == Path::ll128_all_pairs) stand_by_distance(launch);
  launch.mailbox = engine.mailbox_address();
  launch.timeout_ns = arguments.timeout_ns;
  if (path == Path::tma_bulk) return launch_in_bulk(resources, arguments, launch);
  // A group a block, until all are there; then more warps.
  constexpr auto payload = static_cast<std::int64_t>(device::lines_group_payload);
  const std::int64_t groups = (launch.longest + payload - 1) / payload;
  const int most = chosen_.thread_blocks > 0 ? chosen_.thread_blocks : device::lines_max_blocks;
  const std::int64_t blocks = lines_blocks(launch.longest, most_blocks(arguments, most));
  const std::int64_t warps =
      std::min<std::int64_t>((groups + blocks - 1) / blocks, device::lines_warps_of_block(ranks_));
  launch.spreads = collective_ != Collective::gather && blocks >= ranks_ - 1;
  auto* stream = static_cast<sys::cuda::StreamHandle*>(arguments.stream);
  UNISONO_TRY(resources.make_room(stream, static_cast<int>(blocks)));
  void* parameters[] = {&launch};
  const auto result = (path == Path::zero_copy ? engine.straight(ranks_)
                                               : engine.lines(kind_of_data(launch), ranks_))
                          .launch(static_cast<unsigned>(blocks), static_cast<unsigned>(32 * warps),
                                  stream, parameters);
  return engine.device().check(result, "launching a plan by hand");
}

}  // namespace unisono::engine::gpu
