#include "engine/gpu/messages.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "base/try.h"
#include "engine/gpu/link.h"
#include "engine/gpu/self_copies.h"

namespace unisono::engine::gpu {
namespace {

using sys::cuda::DeviceAddress;

// A part of a message that is worth a thread block of its own.
constexpr std::uint64_t worthwhile_bytes = 32 << 10;

// The messages of one direction of one peer, in order.
struct Way {
  int peer = 0;
  bool sends = false;
  std::vector<device::Transfer> transfers;
  int channels = 1;  // the most that one of them uses
  std::vector<transport::Connection*> links;
};

class Messages : public Execution {
 public:
  Messages(int rank, Resources& resources) : rank_(rank), resources_(resources) {}

  Status add(std::span<const Message> messages, int ranks, int max_sms);
  Status start(const Arguments& arguments) override {
    arguments_ = arguments;
    waiting_ = {};
    return {};
  }
  Result<bool> poll() override;
  bool progressed() const override { return progressed_; }
  Waiting waiting() const override { return waiting_; }
  std::size_t memory_bytes() const override { return sizeof *this; }

 private:
  Result<bool> connect();
  void find_views();
  Status copy_to_self(sys::cuda::StreamHandle* stream) const;
  template <int most>
  Status launch(const sys::cuda::Kernel& kernel, sys::cuda::StreamHandle* stream) const;

  int rank_;
  Resources& resources_;
  std::vector<Way> ways_;
  std::vector<SelfCopy> self_copies_;
  int transfers_ = 0;
  Arguments arguments_;
  Waiting waiting_;
  bool progressed_ = false;
};

Status Messages::add(std::span<const Message> messages, int ranks, int max_sms) {
  std::map<std::pair<int, bool>, Way> ways;
  for (const Message& message : messages) {
    const std::uint64_t bytes = bytes_of(message);
    if (message.peer == rank_ || bytes == 0) continue;
    const Cut cut = cut_of(bytes, ranks, max_sms, resources_.engine().options());
    Way& way = ways[{message.peer, message.is_send}];
    way.peer = message.peer;
    way.sends = message.is_send;
    way.channels = std::max(way.channels, cut.channels);
    way.transfers.push_back(
        {.data = reinterpret_cast<DeviceAddress>(data_of(message)),
         .bytes = static_cast<std::int64_t>(bytes),
         .channels = static_cast<std::uint16_t>(cut.channels),
         .posts = ranks <= device::max_viewers && resources_.engine().options().posts(bytes),
         .direct = 0,
         .piece_bytes = static_cast<std::uint32_t>(cut.piece_bytes)});
    ++transfers_;
  }
  if (transfers_ > device::max_transfers)
    return misuse("a group of ", transfers_, " messages on rank ", rank_, "; a group on a stream ",
                  "takes at most ", device::max_transfers);
  int blocks = 0;
  for (auto& [key, way] : ways) {
    blocks += way.channels;
    way.links.resize(static_cast<std::size_t>(way.channels));
    ways_.push_back(std::move(way));
  }
  if (blocks > device::max_transfer_blocks)
    return misuse("a group of messages with ", ways.size(), " peers on rank ", rank_,
                  "; a group on a stream takes at most ", device::max_transfer_blocks);
  UNISONO_ASSIGN(self_copies_, self_copies_of(messages, rank_));
  return {};
}

Result<bool> Messages::connect() {
  bool complete = true;
  for (Way& way : ways_)
    for (int channel = 0; channel < way.channels; ++channel) {
      auto& link = way.links[static_cast<std::size_t>(channel)];
      if (link != nullptr) continue;
      const int number = first_message_channel + channel;
      UNISONO_ASSIGN(link, resources_.link({way.peer, number, Protocol::simple,
                                            link_geometry(resources_.engine().options())}));
      if (link != nullptr) continue;
      complete = false;
      waiting_ = {.kind = Waiting::Kind::connection, .peer = way.peer, .channel = number};
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
  auto* stream = static_cast<sys::cuda::StreamHandle*>(arguments_.stream);
  UNISONO_TRY(resources_.before_launch(stream));
  UNISONO_TRY(copy_to_self(stream));
  find_views();
  if (transfers_ > device::few_transfers)
    UNISONO_TRY(launch<device::max_transfers>(engine.messages(), stream));
  else if (transfers_ > 0)
    UNISONO_TRY(launch<device::few_transfers>(engine.few_messages(), stream));
  UNISONO_TRY(resources_.after_launch(stream));
  progressed_ = true;
  return true;
}

// Of receives: where the sender reaches them.
void Messages::find_views() {
  for (Way& way : ways_) {
    if (way.sends) continue;
    for (device::Transfer& transfer : way.transfers) {
      if (transfer.posts == 0) continue;
      std::array<DeviceAddress, device::max_viewers> views{};
      resources_.find_views(reinterpret_cast<const void*>(transfer.data),
                            static_cast<std::size_t>(transfer.bytes), views);
      const DeviceAddress view = views[static_cast<std::size_t>(way.peer)];
      if (view == 0 || view % device::post_alignment != 0) continue;
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

template <int most>
Status Messages::launch(const sys::cuda::Kernel& kernel, sys::cuda::StreamHandle* stream) const {
  const Engine& engine = resources_.engine();
  device::MessagesLaunch<most> launch;
  unsigned blocks = 0;
  std::uint16_t transfers = 0;
  for (const Way& way : ways_) {
    std::ranges::copy(way.transfers, launch.transfers + transfers);
    for (int channel = 0; channel < way.channels; ++channel)
      launch.blocks[blocks++] = {.link = stored_link(*way.links[static_cast<std::size_t>(channel)]),
                                 .first_transfer = transfers,
                                 .transfers = static_cast<std::uint16_t>(way.transfers.size()),
                                 .channel = static_cast<std::uint16_t>(channel),
                                 .sends = static_cast<std::uint16_t>(way.sends)};
    transfers = static_cast<std::uint16_t>(transfers + way.transfers.size());
  }
  launch.rank = rank_;
  launch.slots = static_cast<std::uint32_t>(engine.options().slots);
  launch.slot_bytes = static_cast<std::uint32_t>(engine.options().slot_bytes);
  launch.mailbox = engine.mailbox_address();
  launch.stopped = engine.stopped_address();
  launch.timeout_ns = arguments_.timeout_ns;
  void* parameters[] = {&launch};
  return engine.device().check(kernel.launch(blocks, device::threads_per_block, stream, parameters),
                               "launching messages");
}

}  // namespace

Cut cut_of(std::uint64_t bytes, int ranks, int max_sms, const Options& options) {
  const int blocks =
      max_sms > 0 ? std::min(max_sms, device::max_transfer_blocks) : device::max_transfer_blocks;
  const int most = std::max(1, blocks / (2 * std::max(1, ranks - 1)));
  const auto wanted = static_cast<int>(std::min<std::uint64_t>(
      (bytes + worthwhile_bytes - 1) / worthwhile_bytes, static_cast<std::uint64_t>(most)));
  const int channels = std::max(1, wanted);
  const std::uint64_t share =
      (bytes + static_cast<unsigned>(channels) - 1) / static_cast<unsigned>(channels);
  constexpr std::uint64_t grain = device::ll128_line_bytes;
  return {channels, std::min(options.slot_bytes, (share + grain - 1) / grain * grain)};
}

Result<std::unique_ptr<Execution>> make_messages(std::span<const Message> messages, int rank,
                                                 int ranks, int max_sms, Resources& resources) {
  auto made = std::make_unique<Messages>(rank, resources);
  UNISONO_TRY(made->add(messages, ranks, max_sms));
  return std::unique_ptr<Execution>(std::move(made));
}

}  // namespace unisono::engine::gpu
