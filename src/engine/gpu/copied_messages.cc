// Groups of messages on the copy engines.
#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/fingerprint.h"
#include "base/try.h"
#include "engine/gpu/copies.h"
#include "engine/gpu/on_copy_engines.h"
#include "engine/gpu/self_copies.h"

namespace unisono::engine::gpu {
namespace {

using sys::cuda::address_of;
using sys::cuda::DeviceAddress;

class CopiedMessages : public OnCopyEngines {
 public:
  CopiedMessages(std::span<const Message> messages, std::vector<SelfCopy> self_copies, int rank,
                 Resources& resources)
      : OnCopyEngines(resources), self_copies_(std::move(self_copies)) {
    std::map<std::pair<bool, int>, Way> ways;  // all that send before all that receive
    for (const Message& message : messages) {
      const std::size_t bytes = bytes_of(message);
      if (message.peer == rank || bytes == 0) continue;
      ways[{!message.is_send, message.peer}].parts.push_back(
          {address_of(data_of(message)), bytes,
           call_tag({.what = pack(message_fingerprint(message.type, message.count))})});
    }
    for (auto& [key, way] : ways) {
      way.sends = !key.first;
      ways_.push_back(std::move(way));
      wanted_.push_back({key.second, copied_message_channel});
    }
  }

  std::size_t memory_bytes() const override { return sizeof *this; }

 private:
  struct Part {
    DeviceAddress address;
    std::size_t bytes;
    std::uint32_t tag;
    int rendezvous = -1;
  };
  // The messages of one direction of one peer, and how far they are on the stream.
  struct Way {
    bool sends = false;
    std::vector<Part> parts;
    std::size_t part = 0;
    std::size_t done_bytes = 0;  // of that part
  };
  void arrange() override;
  Result<bool> enqueue(StreamQueue& queue) override;
  Status enqueue_next(StreamQueue& queue, Way& way, CopyLink& link) const;
  // The next message of a way if it is zero-copy.
  const StreamQueue::ZeroCopy* next_zero_copy(const Way& way) const {
    return way.part < way.parts.size() ? zero_copy(way.parts[way.part].rendezvous) : nullptr;
  }

  std::vector<SelfCopy> self_copies_;
  std::vector<Way> ways_;
  bool has_begun_ = false;
};

void CopiedMessages::arrange() {
  for (std::size_t i = 0; i < ways_.size(); ++i) {
    const auto peer = static_cast<std::size_t>(wanted_[i].peer);
    for (Part& part : ways_[i].parts) {
      if (peer >= device::max_mapped_peers || !links().options().is_zero_copy_size(part.bytes))
        continue;
      std::array<DeviceAddress, device::max_mapped_peers> views{};
      if (!ways_[i].sends) find_peer_mappings(part.address, part.bytes, views);
      part.rendezvous = meet(link(i), ways_[i].sends, 1, part.tag, views[peer]);
    }
  }
}

Result<bool> CopiedMessages::enqueue(StreamQueue& queue) {
  if (!std::exchange(has_begun_, true))
    for (const SelfCopy& copy : self_copies_)
      UNISONO_TRY(queue.copy_concurrently(copy.to, copy.from, copy.bytes));
  for (bool moved = true; moved;) {
    if (queue.is_full()) return false;
    moved = false;
    for (const Way& way : ways_)
      if (const StreamQueue::ZeroCopy* message = next_zero_copy(way); message && way.sends)
        UNISONO_TRY(queue.await_destination(*message));
    for (std::size_t i = 0; i < ways_.size(); ++i) {
      if (ways_[i].part == ways_[i].parts.size()) continue;
      UNISONO_TRY(enqueue_next(queue, ways_[i], link(i)));
      moved = true;
    }
  }
  for (const Way& way : ways_)
    for (const Part& part : way.parts)
      if (!way.sends && zero_copy(part.rendezvous) != nullptr)
        UNISONO_TRY(queue.await_stored(*zero_copy(part.rendezvous), 0));
  return true;
}

// A slot's part of a message, or a zero-copy one, whose receiver waits for it behind all.
Status CopiedMessages::enqueue_next(StreamQueue& queue, Way& way, CopyLink& link) const {
  const Part& part = way.parts[way.part];
  if (const StreamQueue::ZeroCopy* message = next_zero_copy(way)) {
    ++way.part;
    if (!way.sends) return {};
    UNISONO_TRY(queue.copy(destination(part.rendezvous), part.address, part.bytes));
    queue.signal_stored(*message, 0);
    return {};
  }
  const std::size_t bytes = std::min(part.bytes - way.done_bytes, links().options().slot_bytes);
  const DeviceAddress data = part.address + way.done_bytes;
  way.done_bytes += bytes;
  if (way.done_bytes == part.bytes) {
    ++way.part;
    way.done_bytes = 0;
  }
  if (way.sends) {
    UNISONO_ASSIGN(const DeviceAddress slot, queue.begin_send(link));
    UNISONO_TRY(queue.copy(slot, data, bytes));
    return queue.end_send(link, part.tag);
  }
  UNISONO_ASSIGN(const DeviceAddress slot, queue.begin_receive(link, part.tag));
  UNISONO_TRY(queue.copy(data, slot, bytes));
  return queue.end_receive(link);
}

}  // namespace

Result<std::unique_ptr<Execution>> make_copied_messages(std::span<const Message> messages, int rank,
                                                        Resources& resources) {
  UNISONO_ASSIGN(auto self_copies, self_copies_of(messages, rank));
  return std::unique_ptr<Execution>(
      std::make_unique<CopiedMessages>(messages, std::move(self_copies), rank, resources));
}

}  // namespace unisono::engine::gpu
