#include "engine/gpu/direct.h"

#include <algorithm>

#include "base/error.h"
#include "base/try.h"
#include "transport/nvlink/layout.h"

namespace unisono::engine::gpu {
namespace {

using sys::cuda::DeviceAddress;
namespace nvlink = transport::nvlink;

// Beyond those of plans, whose limit is below; calls in which only some send have their own.
constexpr int all_send_channel = 1 << 12;
constexpr int one_way_channel = all_send_channel + 1;

// A region begins with the states of this end's blocks, which count its calls: they stay with the
// connections, whose slots remember the calls of every execution. Those in the connection with the
// lowest rank are used. One more than blocks: its first word says that the calls were given up.
constexpr std::size_t states_bytes = sizeof(device::BlockState) * (device::direct_max_blocks + 1);
// Then a word of the peer's for each block.
constexpr std::size_t greetings_bytes = sizeof(std::uint64_t) * device::direct_max_blocks;
constexpr std::size_t slots_offset = states_bytes + greetings_bytes;
static_assert(slots_offset % device::ll128_line_bytes == 0);

transport::Geometry geometry(int ranks) {
  return {.region_bytes = slots_offset + device::direct_slots * device::direct_slot_bytes(ranks),
          .signals = nvlink::signal_count,
          .layout = device::direct_slot_bytes(ranks)};
}

DeviceAddress address_of(const void* data) { return reinterpret_cast<DeviceAddress>(data); }

}  // namespace

bool is_direct(Collective collective, std::string_view algorithm, int ranks) {
  if (ranks < 2 || ranks > device::direct_max_ranks) return false;
  switch (collective) {
    case Collective::all_reduce:
      return algorithm == "one_shot";
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return algorithm == "direct";
    case Collective::broadcast:
      // Of so few ranks all are children of the root.
      return algorithm == "knomial4" && ranks <= 4;
    default:
      return false;
  }
}

std::optional<Direct> Direct::of(const plan::Header& header, int rank) {
  const std::string_view plan = header.name;
  const std::string_view collective = name(header.collective);
  if (header.protocol != Protocol::ll || plan.size() <= collective.size() + 1 ||
      !plan.ends_with(collective) ||
      !is_direct(header.collective, plan.substr(0, plan.size() - collective.size() - 1),
                 header.ranks))
    return std::nullopt;
  return Direct(header, rank);
}

int direct_least_blocks(std::size_t bytes, int ranks) {
  // 16 bytes of a slot for each 8 of data.
  const std::size_t units_of_block = device::direct_block_bytes(ranks) / 16;
  const std::size_t units = (bytes + 7) / 8;
  return static_cast<int>(std::max<std::size_t>((units + units_of_block - 1) / units_of_block, 1));
}

bool Direct::serves(const Arguments& arguments) const {
  const std::size_t bytes = static_cast<std::size_t>(arguments.count) * size_bytes(arguments.type);
  return bytes > 0 && bytes <= device::direct_max_bytes(ranks_) &&
         direct_least_blocks(bytes, ranks_) <= most_blocks(arguments, device::direct_max_blocks);
}

int Direct::channel() const { return sends_one_way() ? one_way_channel : all_send_channel; }

Result<bool> Direct::connect(Resources& resources, Waiting& waiting) {
  if (is_connected_) return true;
  links_.resize(static_cast<std::size_t>(ranks_));
  bool complete = true;
  for (int peer = 0; peer < ranks_; ++peer) {
    auto& link = links_[static_cast<std::size_t>(peer)];
    if (peer == rank_ || link != nullptr) continue;
    UNISONO_ASSIGN(link, resources.link({peer, channel(), Protocol::ll, geometry(ranks_)}));
    if (link != nullptr) continue;
    complete = false;
    waiting = {.kind = Waiting::Kind::connection, .peer = peer, .channel = channel()};
  }
  is_connected_ = complete;
  return complete;
}

void Direct::set_buffers(const Arguments& arguments, device::DirectLaunch& launch) const {
  const DeviceAddress input = address_of(arguments.input);
  const DeviceAddress output = address_of(arguments.output);
  const auto block = static_cast<std::uint64_t>(launch.bytes);
  const auto own = static_cast<std::uint64_t>(rank_);
  for (std::uint64_t peer = 0; peer < static_cast<std::uint64_t>(ranks_); ++peer) {
    DeviceAddress& source = launch.sources[peer];
    DeviceAddress& destination = launch.destinations[peer];
    switch (collective_) {
      case Collective::all_gather:
        source = input;
        destination = output + peer * block;
        break;
      case Collective::all_to_all:
        source = input + peer * block;
        destination = output + peer * block;
        break;
      case Collective::reduce_scatter:
        source = input + peer * block;
        break;
      case Collective::broadcast:
        if (rank_ == root_) source = input;
        if (static_cast<int>(peer) == (rank_ == root_ ? rank_ : root_)) destination = output;
        break;
      default:
        source = input;
    }
  }
  launch.sources_differ =
      collective_ == Collective::all_to_all || collective_ == Collective::reduce_scatter;
  launch.first = collective_ == Collective::reduce_scatter ? rank_ : 0;
  launch.tells = sends_one_way();
  if (is_reduction(collective_))
    launch.destinations[own] = output;
  else if (launch.sources[own] == launch.destinations[own])  // in place there is nothing to do
    launch.destinations[own] = 0;
}

Status Direct::launch(Resources& resources, const Arguments& arguments,
                      const device::Arithmetic& arithmetic) const {
  const Engine& engine = resources.engine();
  device::DirectLaunch launch{};
  launch.arithmetic = arithmetic;
  launch.bytes = arguments.count * static_cast<std::int64_t>(size_bytes(arguments.type));
  launch.rank = rank_;
  launch.ranks = ranks_;
  set_buffers(arguments, launch);
  for (int peer = 0; peer < ranks_; ++peer) {
    const transport::Connection* link = links_[static_cast<std::size_t>(peer)];
    if (link == nullptr) continue;
    launch.out[peer] = address_of(link->peer_region()) + slots_offset;
    launch.in[peer] = address_of(link->region()) + slots_offset;
    launch.greetings_out[peer] = address_of(link->peer_region()) + states_bytes;
    launch.greetings_in[peer] = address_of(link->region()) + states_bytes;
    if (launch.states == 0) launch.states = address_of(link->region());
  }
  launch.mailbox = engine.mailbox_address();
  launch.timeout_ns = arguments.timeout_ns;
  // A unit a thread, until all blocks are there.
  const std::int64_t units = (launch.bytes + 7) / 8;
  const std::int64_t blocks =
      std::min<std::int64_t>((units + device::threads_per_block - 1) / device::threads_per_block,
                             most_blocks(arguments, device::direct_max_blocks));
  launch.block_units = static_cast<std::uint32_t>((units + blocks - 1) / blocks);
  launch.block_bytes = static_cast<std::uint32_t>(device::direct_block_bytes(ranks_));
  void* parameters[] = {&launch};
  const sys::cuda::Current current(engine.device());
  return engine.device().check(
      engine.device().driver().launch(
          engine.direct(ranks_, is_reduction(collective_)), static_cast<unsigned>(blocks), 1, 1,
          device::threads_per_block, 1, 1, 0,
          static_cast<sys::cuda::StreamHandle*>(arguments.stream), parameters, nullptr),
      str("launching ", name(collective_), " of one hop"));
}

}  // namespace unisono::engine::gpu
