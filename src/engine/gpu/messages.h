// Groups of sends and receives between devices, by a kernel of their own
// (device/kernels/messages.cuh).
#pragma once

#include <unisono/communicator.h>

#include <memory>
#include <span>

#include "engine/gpu/execution.h"

namespace unisono::engine::gpu {

// Channels of the messages' connections begin here, beyond those of plans; before them that of what
// goes in lines.
inline constexpr int first_message_channel = 1 << 13;
inline constexpr int ll128_messages_channel = first_message_channel - 1;

// How a message is cut, by its size, the number of ranks and the limit on SMs alone.
struct Cut {
  int channels = 1;             // or warps, of what goes in lines
  std::size_t piece_bytes = 0;  // 0: in lines
  int blocks = 1;               // thread blocks that this needs at least
};
Cut cut_of(std::uint64_t bytes, int ranks, const CallOptions& call, const Options& options);
// The same of messages that travel by ring links, each piece of which costs the forwarder's time.
Cut ring_cut_of(std::uint64_t bytes, int ranks, const CallOptions& call, const Options& options);

// Misuse for a group that is not whole (messages to the own rank without their receives) or that
// has more messages than a launch takes. The messages are checked in all else.
Result<std::unique_ptr<Execution>> make_messages(std::span<const Message> messages, int rank,
                                                 int ranks, const CallOptions& options,
                                                 Resources& resources);

}  // namespace unisono::engine::gpu
