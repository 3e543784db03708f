#include "engine/gpu/messages.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "base/fingerprint.h"
#include "base/try.h"
#include "device/transfers.h"
#include "engine/gpu/link.h"
#include "engine/gpu/self_copies.h"
#include "transport/nvlink/layout.h"

namespace unisono::engine::gpu {
namespace {

using sys::cuda::DeviceAddress;

// A part of a message that is worth a thread block of its own.
constexpr std::uint64_t worthwhile_bytes = 32 << 10;
// The same by ring links, and how many blocks keep the forwarder busy.
constexpr std::uint64_t worthwhile_ring_bytes = 512 << 10;
constexpr int most_ring_channels = 4;
// Transfer::piece_lines can say no more.
constexpr std::size_t most_piece_bytes = UINT16_MAX * device::ll128_line_bytes;

// In pieces, over as many thread blocks.
Cut cut_into(std::uint64_t bytes, int channels, const Options& options) {
  const std::uint64_t share =
      (bytes + static_cast<unsigned>(channels) - 1) / static_cast<unsigned>(channels);
  constexpr std::uint64_t grain = device::ll128_line_bytes;
  const std::size_t most_bytes = std::min(options.slot_bytes, most_piece_bytes);
  return {channels, std::min(most_bytes, (share + grain - 1) / grain * grain), channels};
}

// The messages of one direction of one peer, in order.
struct Way {
  int peer = 0;
  bool sends = false;
  std::vector<device::Transfer> transfers;
  int blocks = 1;                    // the most that one of them uses
  int warps = 0;                     // of those in LL128
  std::vector<DeviceAddress> links;  // of the others, by channel; 0: being made
  transport::Connection* lines = nullptr;
};

class Messages : public Execution {
 public:
  Messages(int rank, Resources& resources) : rank_(rank), resources_(resources) {}

  Status add(std::span<const Message> messages, int ranks, const CallOptions& options);
  Status start(const Arguments& arguments) override {
    arguments_ = arguments;
    waiting_ = {};
    return {};
  }
  Result<bool> poll() override;
  bool progressed() const override { return progressed_; }
  trace::ChosenPath path(const Arguments&) const override { return {.variant = Path::messages}; }
  Waiting waiting() const override { return waiting_; }
  std::size_t memory_bytes() const override { return sizeof *this; }

 private:
  Result<bool> connect();
  // Whether the link is there; else it is being made.
  Result<bool> connect_lines(Way& way);
  Result<bool> connect(Way& way, std::size_t channel);
  void wait_for(int peer, int channel) {
    waiting_ = {.kind = Waiting::Kind::connection, .peer = peer, .channel = channel};
  }
  void find_peer_mappings(LaunchScope& scope);
  Status copy_to_self(sys::cuda::StreamHandle* stream) const;
  bool fits_in_ll128() const;
  Status launch(LaunchScope& scope, sys::cuda::StreamHandle* stream) const;
  Status launch_ll128(const LaunchScope& scope, sys::cuda::StreamHandle* stream) const;
  template <int most>
  Status launch_any(const sys::cuda::Kernel& kernel, const LaunchScope& scope,
                    sys::cuda::StreamHandle* stream) const;

  int rank_;
  Resources& resources_;
  std::vector<Way> ways_;
  std::vector<SelfCopy> self_copies_;
  int transfers_ = 0;
  Arguments arguments_;
  Waiting waiting_;
  bool progressed_ = false;
};

Status Messages::add(std::span<const Message> messages, int ranks, const CallOptions& options) {
  std::map<std::pair<int, bool>, Way> ways;
  for (const Message& message : messages) {
    const std::uint64_t bytes = bytes_of(message);
    if (message.peer == rank_ || bytes == 0) continue;
    const auto cut_by = resources_.is_ring_peer(message.peer) ? ring_cut_of : cut_of;
    const Cut cut = cut_by(bytes, ranks, options, resources_.engine().options());
    Way& way = ways[{message.peer, message.is_send}];
    way.peer = message.peer;
    way.sends = message.is_send;
    way.blocks = std::max(way.blocks, cut.blocks);
    if (cut.piece_bytes == 0)
      way.warps = std::max(way.warps, cut.channels);
    else
      way.links.resize(std::max(way.links.size(), static_cast<std::size_t>(cut.channels)));
    way.transfers.push_back(
        {.data = reinterpret_cast<DeviceAddress>(data_of(message)),
         .bytes = static_cast<std::int64_t>(bytes),
         .tag = call_tag({.what = pack(message_fingerprint(message.type, message.count))}),
         .piece_lines = static_cast<std::uint16_t>(cut.piece_bytes / device::ll128_line_bytes),
         .channels = static_cast<std::uint16_t>(cut.channels),
         .posts = ranks <= device::max_mapped_peers && resources_.engine().options().posts(bytes),
         .direct = 0});
    ++transfers_;
  }
  if (transfers_ > device::max_transfers)
    return misuse("a group on rank ", rank_, " has ", transfers_,
                  " messages; a group on a stream may have at most ", device::max_transfers);
  int blocks = 0;
  for (auto& [key, way] : ways) {
    blocks += way.blocks;
    ways_.push_back(std::move(way));
  }
  if (blocks > device::max_transfer_blocks)
    return misuse("a group of messages on rank ", rank_, " has ", ways.size(),
                  " peers; a group on a stream may have at most ", device::max_transfer_blocks);
  UNISONO_ASSIGN(self_copies_, self_copies_of(messages, rank_));
  return {};
}

Result<bool> Messages::connect_lines(Way& way) {
  if (way.warps == 0 || way.lines != nullptr) return true;
  const transport::Geometry geometry{
      .region_bytes = transport::nvlink::slots_offset + device::ll128_messages_bytes,
      .signals = transport::nvlink::signal_count,
      .layout = device::ll128_messages_bytes};
  UNISONO_ASSIGN(way.lines,
                 resources_.link({way.peer, ll128_messages_channel, Protocol::ll128, geometry}));
  if (way.lines == nullptr) wait_for(way.peer, ll128_messages_channel);
  return way.lines != nullptr;
}

Result<bool> Messages::connect(Way& way, std::size_t channel) {
  DeviceAddress& link = way.links[channel];
  if (link != 0) return true;
  const int of_messages = first_message_channel + static_cast<int>(channel);
  UNISONO_ASSIGN(link, resources_.message_link({way.peer, of_messages, Protocol::simple,
                                                link_geometry(resources_.engine().options())}));
  if (link == 0) wait_for(way.peer, of_messages);
  return link != 0;
}

Result<bool> Messages::connect() {
  bool complete = true;
  for (Way& way : ways_) {
    UNISONO_ASSIGN(const bool has_lines, connect_lines(way));
    complete = complete && has_lines;
    for (std::size_t channel = 0; channel < way.links.size(); ++channel) {
      UNISONO_ASSIGN(const bool is_there, connect(way, channel));
      complete = complete && is_there;
    }
  }
  return complete;
}

Result<bool> Messages::poll() {
  progressed_ = false;
  const Engine& engine = resources_.engine();
  UNISONO_TRY(engine.failure());
  UNISONO_ASSIGN(const bool is_ready, connect());
  if (!is_ready) {
    UNISONO_TRY(resources_.progress());
    return false;
  }
  auto* stream = static_cast<sys::cuda::StreamHandle*>(arguments_.stream());
  UNISONO_ASSIGN(const OpenLaunch scope, resources_.open(stream));
  UNISONO_TRY(copy_to_self(stream));
  find_peer_mappings(*scope);
  if (transfers_ > 0) UNISONO_TRY(launch(*scope, stream));
  UNISONO_TRY(scope->finish());
  progressed_ = true;
  return true;
}

// Finds the addresses by which senders write to the buffers of receives.
void Messages::find_peer_mappings(LaunchScope& scope) {
  for (Way& way : ways_) {
    if (way.sends) continue;
    for (device::Transfer& transfer : way.transfers) {
      if (transfer.posts == 0) continue;
      std::array<DeviceAddress, device::max_mapped_peers> views{};
      scope.find_peer_mappings(reinterpret_cast<const void*>(transfer.data),
                               static_cast<std::size_t>(transfer.bytes), views);
      const DeviceAddress view = views[static_cast<std::size_t>(way.peer)];
      if (view == 0 || view % device::address_alignment != 0) continue;
      transfer.data = view;
      transfer.direct = 1;
    }
  }
}

Status Messages::copy_to_self(sys::cuda::StreamHandle* stream) const {
  const sys::cuda::Device& device = resources_.engine().device();
  const sys::cuda::Current current(device);
  for (const SelfCopy& copy : self_copies_)
    UNISONO_TRY(device.check(device.driver().copy_async(copy.to, copy.from, copy.bytes, stream),
                             str("copying ", copy.bytes, " bytes to the own rank")));
  return {};
}

bool Messages::fits_in_ll128() const {
  return ways_.size() <= device::ll128_messages_max_routes &&
         transfers_ <= device::ll128_messages_max_transfers &&
         std::ranges::all_of(ways_, [](const Way& way) { return way.links.empty(); });
}

Status Messages::launch(LaunchScope& scope, sys::cuda::StreamHandle* stream) const {
  const Engine& engine = resources_.engine();
  int blocks = 0;
  for (const Way& way : ways_) blocks += way.blocks;
  UNISONO_TRY(scope.make_room(blocks));
  if (fits_in_ll128()) return launch_ll128(scope, stream);
  if (transfers_ <= device::small_launch_transfers)
    return launch_any<device::small_launch_transfers>(
        engine.kernel(device::KernelFamily::messages_small), scope, stream);
  return launch_any<device::max_transfers>(engine.kernel(device::KernelFamily::messages), scope,
                                           stream);
}

Status Messages::launch_ll128(const LaunchScope& scope, sys::cuda::StreamHandle* stream) const {
  const Engine& engine = resources_.engine();
  device::Ll128MessagesLaunch launch;
  int blocks = 0;
  int transfers = 0;
  int warps_of_block = 1;
  launch.way_count = 0;
  for (const Way& way : ways_) {
    std::ranges::copy(way.transfers, launch.transfers + transfers);
    launch.ways[launch.way_count++] = {
        .in = way.lines->device_link()->region + transport::nvlink::slots_offset,
        .out = way.lines->device_link()->peer_region + transport::nvlink::slots_offset,
        .peer = static_cast<std::int16_t>(way.peer),
        .sends = static_cast<std::uint16_t>(way.sends),
        .first_block = static_cast<std::uint8_t>(blocks),
        .blocks = static_cast<std::uint8_t>(way.blocks),
        .first_transfer = static_cast<std::uint8_t>(transfers),
        .transfers = static_cast<std::uint8_t>(way.transfers.size())};
    blocks += way.blocks;
    transfers += static_cast<int>(way.transfers.size());
    warps_of_block = std::max(warps_of_block, (way.warps + way.blocks - 1) / way.blocks);
  }
  launch.rank = rank_;
  launch.mailbox = engine.mailbox_address();
  launch.stopped = engine.stopped_address();
  launch.timeout_ns = arguments_.timeout_ns();
  launch.stamp = scope.stamp();
  void* parameters[] = {&launch};
  return engine.device().check(
      engine.kernel(device::KernelFamily::ll128_messages)
          .launch(static_cast<unsigned>(blocks), static_cast<unsigned>(32 * warps_of_block), stream,
                  parameters),
      "launching messages");
}

template <int most>
Status Messages::launch_any(const sys::cuda::Kernel& kernel, const LaunchScope& scope,
                            sys::cuda::StreamHandle* stream) const {
  const Engine& engine = resources_.engine();
  device::MessagesLaunch<most> launch;
  unsigned blocks = 0;
  std::uint16_t transfers = 0;
  for (const Way& way : ways_) {
    std::ranges::copy(way.transfers, launch.transfers + transfers);
    for (int channel = 0; channel < way.blocks; ++channel) {
      const auto at = static_cast<std::size_t>(channel);
      launch.blocks[blocks++] = {.link = at < way.links.size() ? way.links[at] : 0,
                                 .lines = way.lines != nullptr ? stored_link(*way.lines) : 0,
                                 .first_transfer = transfers,
                                 .transfers = static_cast<std::uint16_t>(way.transfers.size()),
                                 .channel = static_cast<std::uint8_t>(channel),
                                 .channels = static_cast<std::uint8_t>(way.blocks),
                                 .sends = static_cast<std::uint8_t>(way.sends)};
    }
    transfers = static_cast<std::uint16_t>(transfers + way.transfers.size());
  }
  launch.rank = rank_;
  launch.slots = static_cast<std::uint32_t>(engine.options().slots);
  launch.slot_stride = static_cast<std::uint32_t>(engine.options().slot_stride());
  launch.mailbox = engine.mailbox_address();
  launch.stopped = engine.stopped_address();
  launch.timeout_ns = arguments_.timeout_ns();
  launch.stamp = scope.stamp();
  void* parameters[] = {&launch};
  return engine.device().check(kernel.launch(blocks, device::threads_per_block, stream, parameters),
                               "launching messages");
}

}  // namespace

Cut cut_of(std::uint64_t bytes, int ranks, const CallOptions& call, const Options& options) {
  const int blocks = call.at_most(device::max_transfer_blocks);
  const int most = std::max(1, blocks / (2 * std::max(1, ranks - 1)));
  const auto parts = [&](std::uint64_t part_bytes, int at_most) {
    return static_cast<int>(std::min<std::uint64_t>((bytes + part_bytes - 1) / part_bytes,
                                                    static_cast<std::uint64_t>(at_most)));
  };
  if (bytes < options.ll128_messages_bytes && !options.posts(bytes) &&
      ranks <= device::all_pairs_max_ranks) {
    const int warps =
        parts(device::ll128_group_payload,
              std::min(device::ll128_messages_warps, most * device::ll128_max_warps_of_block));
    return {warps, 0, std::min(warps, most)};
  }
  return cut_into(bytes, std::max(1, parts(worthwhile_bytes, most)), options);
}

Cut ring_cut_of(std::uint64_t bytes, int ranks, const CallOptions& call, const Options& options) {
  const int most =
      std::max(1, call.at_most(device::max_transfer_blocks) / (2 * std::max(1, ranks - 1)));
  const int channels = static_cast<int>(
      std::clamp<std::uint64_t>(bytes / worthwhile_ring_bytes, 1,
                                static_cast<std::uint64_t>(std::min(most, most_ring_channels))));
  return cut_into(bytes, channels, options);
}

Result<std::unique_ptr<Execution>> make_messages(std::span<const Message> messages, int rank,
                                                 int ranks, const CallOptions& options,
                                                 Resources& resources) {
  auto made = std::make_unique<Messages>(rank, resources);
  UNISONO_TRY(made->add(messages, ranks, options));
  return std::unique_ptr<Execution>(std::move(made));
}

}  // namespace unisono::engine::gpu
