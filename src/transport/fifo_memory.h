// Memory for what a sender stores into a mapped region: reserved once, as messages first need it,
// since the slots of all protocols together are far more than most connections use.
//
// The sender reserves for the receiver, too: the bytes of a message before it announces it, and
// with them the place where the next message will be announced, which the receiver looks at next.
// The receiver reserves where the first one will be (make_recv_fifo).
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/try.h"
#include "transport/fifo_layout.h"
#include "transport/transport.h"

namespace unisono::transport {

class SlotMemory {
 public:
  SlotMemory(Connection& connection, const FifoLayout& layout)
      : connection_(&connection),
        offset_(layout.offset),
        stride_(layout.slot_stride),
        reserved_(static_cast<std::size_t>(layout.slots)) {}

  bool has(std::size_t slot, std::size_t bytes) const { return bytes <= reserved_[slot]; }
  // The first `bytes` of a slot.
  Status reserve(std::size_t slot, std::size_t bytes) {
    if (has(slot, bytes)) [[likely]]
      return {};
    constexpr std::size_t grain = 4096;
    const std::size_t most = std::min((bytes + grain - 1) / grain * grain, stride_);
    UNISONO_TRY(connection_->reserve_at_peer(offset_ + slot * stride_, most));
    reserved_[slot] = most;
    return {};
  }

 private:
  Connection* connection_;
  std::size_t offset_;
  std::size_t stride_;
  std::vector<std::size_t> reserved_;  // bytes at the beginning of each slot
};

class HeadMemory {
 public:
  HeadMemory(Connection& connection, const FifoLayout& layout)
      : connection_(&connection), offset_(layout.heads_offset), heads_(layout.heads) {}

  // For this head and the next one.
  bool has(std::size_t head) const { return head < with_next_; }
  Status reserve(std::size_t head) {
    if (has(head)) [[likely]]
      return {};
    constexpr std::size_t grain = 4096;
    const std::size_t bytes = std::max(head + 2, 2 * with_next_) * head_stride;
    const std::size_t most = std::min((bytes + grain - 1) / grain * grain, heads_ * head_stride);
    UNISONO_TRY(connection_->reserve_at_peer(offset_, most));
    const std::size_t reserved = most / head_stride;
    with_next_ = reserved == heads_ ? heads_ : reserved - 1;
    return {};
  }

 private:
  Connection* connection_;
  std::size_t offset_;
  std::size_t heads_;
  std::size_t with_next_ = 0;
};

}  // namespace unisono::transport
