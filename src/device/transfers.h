// What the kernels of grouped sends and receives are given.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/common.h"
#include "device/stamps.h"

namespace unisono::device {

// A group of sends and receives. Message by message, each direction of each peer has thread blocks,
// among which a message is cut by its size alone, so that both ends agree whatever the groups are:
// in pieces over its first `channels` channels in turn, a block each; or, where it is short, in
// groups of LL128's lines (copy/group.cuh) over as many warps in turn.
struct Transfer {
  // For a receive that is `direct`: in the sender's addresses.
  std::uint64_t data;
  std::int64_t bytes;
  std::uint32_t tag;          // of the message
  std::uint16_t piece_lines;  // of 128 bytes in a piece; 0: in LL128
  std::uint16_t channels : 14;
  std::uint16_t posts : 1;   // by its size alone: the receiver says where it goes
  std::uint16_t direct : 1;  // receives

  constexpr std::uint32_t piece_bytes() const {
    return piece_lines * static_cast<std::uint32_t>(ll128_line_bytes);
  }
};
struct TransferBlock {
  std::uint64_t link;   // Link, in device memory; 0: no message uses slots
  std::uint64_t lines;  // Link of messages in LL128, in device memory
  std::uint16_t first_transfer;
  std::uint16_t transfers;
  std::uint8_t channel;  // this block's, of the direction's `channels`
  std::uint8_t channels;
  std::uint8_t sends;
};
inline constexpr int max_transfer_blocks = 128;
inline constexpr int small_launch_transfers = 40;
inline constexpr int max_transfers = 1024;
// The kernel comes in two sizes, because parameters cost time by their size.
template <int most>
struct MessagesLaunch {
  TransferBlock blocks[max_transfer_blocks];
  Transfer transfers[most];
  std::int32_t rank;
  std::uint32_t slots;
  std::uint32_t slot_stride;
  std::uint64_t mailbox;
  std::uint64_t stopped;
  std::int64_t timeout_ns;
  Stamp stamp;
};
static_assert(sizeof(MessagesLaunch<small_launch_transfers>) <= 4096);
static_assert(sizeof(MessagesLaunch<max_transfers>) <= 32764, "what CUDA 12.1 takes");

// What a connection holds for messages in LL128, where slots of others are: of this end, groups
// that each warp has sent and has taken; of the peer, stored by it, groups of this end's that its
// warps have taken; then each warp's slots.
inline constexpr int ll128_messages_warps = 256;
inline constexpr std::size_t ll128_messages_slots = 4;
struct Ll128Messages {
  std::uint64_t sent[ll128_messages_warps];
  std::uint64_t taken[ll128_messages_warps];
  std::uint64_t given_back[ll128_messages_warps];
};
inline constexpr std::size_t ll128_messages_bytes =
    sizeof(Ll128Messages) +
    std::size_t{ll128_messages_warps} * ll128_messages_slots * ll128_group_bytes;
// A group whose messages are few and all in LL128 has a kernel of its own.
struct Ll128MessagesRoute {
  std::uint64_t in;   // Ll128Messages, own
  std::uint64_t out;  // the peer's
  std::int16_t peer;
  std::uint16_t sends;
  std::uint8_t first_block;
  std::uint8_t blocks;
  std::uint8_t first_transfer;
  std::uint8_t transfers;
};
inline constexpr int ll128_messages_max_routes = 14;
inline constexpr int ll128_messages_max_transfers = 16;
struct Ll128MessagesLaunch {
  std::uint64_t mailbox;
  std::uint64_t stopped;
  std::int64_t timeout_ns;
  Stamp stamp;
  std::int32_t rank;
  std::int32_t way_count;
  Ll128MessagesRoute ways[ll128_messages_max_routes];
  Transfer transfers[ll128_messages_max_transfers];
};

}  // namespace unisono::device
