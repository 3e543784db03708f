#include "engine/gpu/ll_all_pairs.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/try.h"
#include "transport/nvlink/layout.h"

namespace unisono::engine::gpu {
namespace {

using device::LlKind;
using sys::cuda::DeviceAddress;
namespace nvlink = transport::nvlink;

// Calls in which only some send have their own.
constexpr int all_send_channel = ll_channel;
constexpr int one_way_channel = all_send_channel + 1;
constexpr int two_shot_channel = all_send_channel + 2;

// So many are launched sooner than a full block.
constexpr std::int64_t few_threads = 128;

// A region begins with the states of this end's blocks, which count its calls: they stay with the
// connections, whose slots remember the calls of every execution. Those in the connection with the
// lowest rank are used. One more than blocks: its first word says that the calls were given up.
constexpr std::size_t states_bytes = sizeof(device::BlockState) * (device::ll_max_blocks + 1);
// Then the peer's greetings.
constexpr std::size_t slots_offset = states_bytes + device::ll_greetings_bytes;
static_assert(slots_offset % device::ll128_line_bytes == 0);

}  // namespace

std::optional<LlKind> ll_kind(const plan::Exchange& exchange) {
  const int ranks = exchange.size();
  if (!is_carried(exchange)) return std::nullopt;
  if (exchange.hops == 1) {
    if (!exchange.has_whole_blocks()) return std::nullopt;
    if (!exchange.reduces) return LlKind::take;
    return adds_all_in_turn(exchange) ? std::optional(LlKind::combine) : std::nullopt;
  }
  // Two ranks send as much in one hop.
  if (ranks == 2 || !exchange.reduces || !adds_all_in_turn(exchange)) return std::nullopt;
  const bool all_forward = std::ranges::all_of(exchange.ranks, [&](const auto& rank) {
    return std::ssize(rank.forwards) == ranks - 1 &&
           std::ranges::none_of(rank.takes, &plan::Chunks::empty);
  });
  return all_forward ? std::optional(LlKind::two_shot) : std::nullopt;
}

std::unique_ptr<SpecialisedKernel> LlAllPairs::make(
    const plan::Header& header, int rank, std::shared_ptr<const plan::Exchange> exchange) {
  const auto kind = ll_kind(*exchange);
  return kind ? std::unique_ptr<SpecialisedKernel>(
                    new LlAllPairs(header, rank, std::move(exchange), *kind))
              : nullptr;
}

transport::Geometry LlAllPairs::geometry(int) const {
  const std::size_t slot_bytes = device::ll_all_pairs_slot_bytes(kind_, ranks_);
  return {.region_bytes = slots_offset + device::ll_slots * slot_bytes,
          .signals = nvlink::signal_count,
          .layout = slot_bytes};
}

int ll_least_blocks(LlKind kind, std::size_t bytes, int ranks) {
  // 16 bytes of a slot for each 8 of data.
  const std::size_t units_of_block = device::ll_block_bytes(kind, ranks) / 16;
  const std::size_t units = (bytes + 7) / 8;
  return static_cast<int>(std::max<std::size_t>((units + units_of_block - 1) / units_of_block, 1));
}

bool LlAllPairs::serves(const Arguments& arguments) const {
  const std::int64_t bytes = longest_bytes(arguments);
  return bytes > 0 && bytes <= static_cast<std::int64_t>(device::ll_max_bytes(kind_, ranks_)) &&
         ll_least_blocks(kind_, static_cast<std::size_t>(bytes), ranks_) <=
             arguments.options.at_most(device::ll_max_blocks);
}

trace::ChosenPath ll_path(LlKind kind, std::size_t bytes, int ranks, const CallOptions& options) {
  const auto units = static_cast<std::int64_t>((bytes + 7) / 8);
  const auto blocks = static_cast<int>(
      std::min<std::int64_t>((units + few_threads - 1) / few_threads, device::ll_max_blocks));
  return {.variant = Path::ll_all_pairs,
          .thread_blocks = options.at_most(blocks),
          .slots = device::ll_slots,
          .chunk_bytes = static_cast<std::uint32_t>(device::ll_max_bytes(kind, ranks))};
}

int LlAllPairs::channel(const Arguments&) const {
  if (kind_ == LlKind::two_shot) return two_shot_channel;
  return is_one_way() ? one_way_channel : all_send_channel;
}

void LlAllPairs::set_buffers(const Arguments& arguments, device::LlLaunch& launch) const {
  set_peers(arguments, launch.first, launch);
  device::LlPeer& own = launch.peers[launch.own];
  // What is added comes to where the sum is put.
  if (kind_ == LlKind::combine)
    for (int i = 0; i < ranks_; ++i) launch.peers[i].destination = own.destination;
  // In place there is nothing to do.
  if (kind_ == LlKind::take && own.source == own.destination) own.destination = 0;
}

// What all calls have alike, once they are connected.
void LlAllPairs::prepare_all(const Engine& engine) {
  device::LlLaunch& launch = launch_;
  launch.rank = static_cast<std::int16_t>(rank_);
  launch.ranks = static_cast<std::int16_t>(ranks_);
  launch.first =
      static_cast<std::int16_t>(own_part().adds.empty() ? rank_ : own_part().adds.front());
  launch.own = static_cast<std::int16_t>((rank_ - launch.first + ranks_) % ranks_);
  launch.signals = is_one_way();
  for (int i = 0; i < ranks_; ++i) {
    const transport::Connection* connection =
        links()[static_cast<std::size_t>((launch.first + i) % ranks_)];
    if (connection == nullptr) continue;
    const transport::DeviceLink& link = *connection->device_link();
    launch.peers[i].out = link.peer_region + slots_offset;
    launch.peers[i].in = link.region + slots_offset;
  }
  const auto lowest = std::ranges::find_if(links(), [](auto* link) { return link != nullptr; });
  launch.states = (*lowest)->device_link()->region;
  launch.mailbox = engine.mailbox_address();
  launch.block_bytes = static_cast<std::uint32_t>(device::ll_block_bytes(kind_, ranks_));
}

void LlAllPairs::prepare(const Engine& engine, const Arguments& arguments,
                         const device::Arithmetic& arithmetic) {
  device::LlLaunch& launch = launch_;
  if (launch.states == 0) prepare_all(engine);
  launch.arithmetic = arithmetic;
  launch.bytes = longest_bytes(arguments);
  launch.timeout_ns = arguments.timeout_ns();
  launch.tag = call_tag(arguments.call);
  set_buffers(arguments, launch);
  const std::int64_t units = (launch.bytes + 7) / 8;
  const std::int64_t blocks = arguments.path.thread_blocks;
  launch.block_units = static_cast<std::uint32_t>((units + blocks - 1) / blocks);
  threads_ = std::min<unsigned>((launch.block_units + 31) / 32 * 32,
                                static_cast<unsigned>(device::threads_per_block));
  std::uint64_t all = 0;
  for (const device::LlPeer& peer : std::span(launch.peers, static_cast<std::size_t>(ranks_)))
    all |= peer.source | peer.destination | static_cast<std::uint64_t>(peer.bytes);
  const device::DataKind data =
      data_kind(all, device::ll_unit_payload, ranks_, kind_ != LlKind::take, arithmetic);
  kernel_ = &engine.ll(kind_, data, ranks_);
}

Status LlAllPairs::launch(const Engine& engine, LaunchScope& scope, const Arguments& arguments,
                          const device::Arithmetic& arithmetic, const device::Stamp& stamp,
                          bool is_repeated) {
  if (!is_repeated) prepare(engine, arguments, arithmetic);
  auto* stream = static_cast<sys::cuda::StreamHandle*>(arguments.stream());
  const int blocks = arguments.path.thread_blocks;
  UNISONO_TRY(scope.make_room(blocks));
  launch_.stamp = stamp;
  void* parameters[] = {&launch_};
  const auto result = kernel_->launch(static_cast<unsigned>(blocks), threads_, stream, parameters);
  return engine.device().check(result, "launching an LL all-pairs kernel");
}

}  // namespace unisono::engine::gpu
