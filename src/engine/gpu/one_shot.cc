#include "engine/gpu/one_shot.h"

#include <algorithm>

#include "base/error.h"
#include "base/try.h"
#include "transport/nvlink/layout.h"

namespace unisono::engine::gpu {
namespace {

using sys::cuda::DeviceAddress;
namespace nvlink = transport::nvlink;

// Beyond those of plans, whose limit is below.
constexpr int one_shot_channel = 1 << 12;

// A region begins with the states of this end's blocks, which count its calls: they stay with the
// connections, whose slots remember the calls of every execution. Those in the connection with the
// lowest rank are used. One more than blocks: its first word says that the calls were given up.
constexpr std::size_t states_bytes = sizeof(device::BlockState) * (device::one_shot_max_blocks + 1);

transport::Geometry geometry() {
  return {.region_bytes = states_bytes + device::one_shot_slots * device::one_shot_slot_bytes,
          .signals = nvlink::signal_count,
          .layout = device::one_shot_slot_bytes};
}

DeviceAddress address_of(const std::byte* region) {
  return reinterpret_cast<DeviceAddress>(region);
}

}  // namespace

bool OneShot::implements(const plan::Header& header) {
  return header.name == "one_shot_all_reduce" && header.protocol == Protocol::ll &&
         header.ranks >= 2 && header.ranks <= device::one_shot_max_ranks;
}

bool OneShot::serves(const Arguments& arguments) {
  const std::size_t bytes = static_cast<std::size_t>(arguments.count) * size_bytes(arguments.type);
  return bytes > 0 && bytes <= device::one_shot_max_bytes;
}

Result<bool> OneShot::connect(Resources& resources, Waiting& waiting) {
  if (is_connected_) return true;
  links_.resize(static_cast<std::size_t>(ranks_));
  bool complete = true;
  for (int peer = 0; peer < ranks_; ++peer) {
    auto& link = links_[static_cast<std::size_t>(peer)];
    if (peer == rank_ || link != nullptr) continue;
    UNISONO_ASSIGN(link, resources.link({peer, one_shot_channel, Protocol::ll, geometry()}));
    if (link != nullptr) continue;
    complete = false;
    waiting = {.kind = Waiting::Kind::connection, .peer = peer, .channel = one_shot_channel};
  }
  is_connected_ = complete;
  return complete;
}

Status OneShot::launch(Resources& resources, const Arguments& arguments,
                       const device::Arithmetic& arithmetic) const {
  const Engine& engine = resources.engine();
  device::OneShotLaunch launch{};
  launch.arithmetic = arithmetic;
  launch.input = reinterpret_cast<DeviceAddress>(arguments.input);
  launch.output = reinterpret_cast<DeviceAddress>(arguments.output);
  launch.bytes = arguments.count * static_cast<std::int64_t>(size_bytes(arguments.type));
  launch.rank = rank_;
  launch.ranks = ranks_;
  for (int peer = 0; peer < ranks_; ++peer) {
    const transport::Connection* link = links_[static_cast<std::size_t>(peer)];
    if (link == nullptr) continue;
    launch.out[peer] = address_of(link->peer_region()) + states_bytes;
    launch.in[peer] = address_of(link->region()) + states_bytes;
    if (launch.states == 0) launch.states = address_of(link->region());
  }
  launch.mailbox = engine.mailbox_address();
  launch.timeout_ns = arguments.timeout_ns;
  // A unit a thread, until all blocks are there.
  const std::int64_t units = (launch.bytes + 7) / 8;
  const std::int64_t blocks =
      std::min<std::int64_t>((units + device::threads_per_block - 1) / device::threads_per_block,
                             device::one_shot_max_blocks);
  launch.block_units = static_cast<std::uint32_t>((units + blocks - 1) / blocks);
  void* parameters[] = {&launch};
  const sys::cuda::Current current(engine.device());
  return engine.device().check(
      engine.device().driver().launch(
          engine.one_shot(), static_cast<unsigned>(blocks), 1, 1, device::threads_per_block, 1, 1,
          0, static_cast<sys::cuda::StreamHandle*>(arguments.stream), parameters, nullptr),
      "launching a one-shot all-reduce");
}

}  // namespace unisono::engine::gpu
