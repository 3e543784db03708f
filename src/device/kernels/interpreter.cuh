// The kernel that runs any plan: one thread block for each thread block of the rank's program.
//
// A step: three threads wait, for other thread blocks' steps, for the message (Simple), for a free
// slot; a barrier; all threads move the data; a barrier; three threads tell: the message's arrival
// (Simple), the slot's return, the step's completion. The barriers order the block's own accesses,
// and make the releases by single threads cover those of all.
//
// A token (signal, wait) is a message without data: it has a slot, and in every protocol the
// signal of arrivals, whose number counts all messages before it.
//
// In a launch that `posts`, each block first says where the messages that it receives go, of those
// that the sender may store there at any time of the launch and can reach. A step that sends such a
// message stores it there, and needs no slot; the one that receives it finds it in place.
#pragma once

#include <unisono/types.h>

#include <cstdint>

#include "device/copy/move.cuh"
#include "device/kernels/address.cuh"
#include "device/kernels/extent.cuh"
#include "device/link.h"
#include "device/program.h"
#include "device/ptx/grid.cuh"
#include "device/sync/link.cuh"
#include "device/sync/stamp.cuh"
#include "device/sync/wait.cuh"

namespace unisono::device {
namespace {

// Threads that wait and tell, each of another warp.
constexpr unsigned dependency_thread = 0;
constexpr unsigned receive_thread = 32;
constexpr unsigned send_thread = 64;

constexpr int staged_steps = 256;

struct Shared {
  Step steps[staged_steps];
  Block block;
  Link send;
  Link recv;
  // By Step::in_address and out_address; 0: through a slot.
  std::uint64_t in_addresses[max_addresses + 1];
  std::uint64_t out_addresses[max_addresses + 1];
};

// A thread block on its way through the program. Every thread has its own copy; they are alike.
// Programs without tokens have a kernel of their own, because registers are few, and so have those
// of which some messages travel by ring links.
template <bool has_tokens, bool has_rings>
struct Worker {
  const Launch& launch;
  Shared& shared;
  Watch watch;
  std::uint64_t epoch;       // this launch of the program, from 1
  std::uint64_t sent;        // messages on the send link
  std::uint64_t received;    // on the receive link
  std::uint64_t given_back;  // of those sent; known to send_thread only

  // Whether the step's message, if it has one, is a token.
  __device__ static bool is_token(const Step& step) { return has_tokens && step.count == 0; }
  __device__ Place place(const Step& step, int tile) const {
    return {launch.program.rank, static_cast<int>(blockIdx.x), step.number, tile};
  }
  __device__ std::uint64_t slot(std::uint64_t slots, std::uint64_t number) const {
    const std::uint32_t index = static_cast<std::uint32_t>(number) & (launch.program.slots - 1);
    return slots + std::uint64_t{index} * launch.program.slot_bytes;
  }
  // Steps of block `other` complete after `steps` steps of `tile`, as BlockState::progress counts.
  __device__ std::uint64_t progress_at(int other, int tile, int steps) const {
    const std::uint32_t each = at_address<const Block>(launch.program.blocks)[other].steps;
    return epoch << 32 | (static_cast<std::uint32_t>(tile) * each + static_cast<unsigned>(steps));
  }

  __device__ std::uint64_t mapping_of(const Step& step) const;
  __device__ bool agree();
  __device__ std::uint64_t slot_bytes(const Step& step, int tile) const;
  __device__ bool wait_for_dependencies(const Step& step, int tile) const;
  __device__ bool move(const Step& step, int tile) const;
  __device__ void tell(const Step& step, int tile, bool moved);
  __device__ bool run(const Step& step, int tile);
};

// Where the sender stores the first tile of the message that the step takes; 0: in a slot.
template <bool has_tokens, bool has_rings>
__device__ std::uint64_t Worker<has_tokens, has_rings>::mapping_of(const Step& step) const {
  const std::uint64_t output = launch.peer_outputs[shared.recv.peer];
  if (output == 0) return 0;
  const Byte* data = locate(launch, step.destination_buffer, step.destination, 0).data;
  const std::uint64_t view = output + (data - at_address<Byte>(launch.buffers[output_buffer]));
  return view % address_alignment == 0 ? view : 0;
}

// Exchanges the destinations of messages with the peers. False if the launch is given up.
template <bool has_tokens, bool has_rings>
__device__ bool Worker<has_tokens, has_rings>::agree() {
  if (threadIdx.x <= max_addresses) {
    shared.in_addresses[threadIdx.x] = 0;
    shared.out_addresses[threadIdx.x] = 0;
  }
  __syncthreads();
  if (launch.posts == 0) return true;
  if (shared.block.receives > 0) {
    const auto* steps = at_address<const Step>(launch.program.steps) + shared.block.first_step;
    for (std::uint32_t i = threadIdx.x; i < shared.block.steps; i += threads_per_block)
      if (steps[i].in_address != 0) shared.in_addresses[steps[i].in_address] = mapping_of(steps[i]);
    __syncthreads();
    // All of them: other plans have used the link.
    if (threadIdx.x < max_addresses)
      ptx::store_relaxed_sys(
          at_address<PeerAddresses>(shared.recv.in_addresses)->addresses + threadIdx.x,
          shared.in_addresses[threadIdx.x + 1]);
    __syncthreads();
    if (threadIdx.x == receive_thread)
      signal_addresses(shared.recv, launch.tag,
                       at_address<LinkCounters>(shared.recv.counters)->posted + 1);
  }
  if (shared.block.sends == 0) return true;
  bool goes_on = true;
  if (threadIdx.x == send_thread)
    goes_on =
        wait_for_addresses(watch, place({}, 0), shared.send,
                           at_address<LinkCounters>(shared.send.counters)->heeded, launch.tag);
  if (__syncthreads_or(goes_on ? 0 : 1) != 0) return false;
  if (threadIdx.x < max_addresses)
    shared.out_addresses[threadIdx.x + 1] = ptx::load_relaxed_sys(
        at_address<const PeerAddresses>(shared.send.out_addresses)->addresses + threadIdx.x);
  __syncthreads();
  return true;
}

// How far the step's message fills a slot; 0: nothing moves.
template <bool has_tokens, bool has_rings>
__device__ std::uint64_t Worker<has_tokens, has_rings>::slot_bytes(const Step& step,
                                                                   int tile) const {
  const bool by_source = (step.flags & takes_source) != 0;
  const int buffer = by_source ? step.source_buffer : step.destination_buffer;
  const int first = by_source ? step.source : step.destination;
  std::uint64_t end = 0;
  for (int i = 0; i < step.count; ++i) {
    const std::int64_t bytes = locate(launch, buffer, first + i, tile).bytes;
    if (bytes > 0)
      end = static_cast<std::uint64_t>(i) * launch.piece_bytes + static_cast<std::uint64_t>(bytes);
  }
  return end;
}

template <bool has_tokens, bool has_rings>
__device__ bool Worker<has_tokens, has_rings>::wait_for_dependencies(const Step& step,
                                                                     int tile) const {
  const auto* dependencies = at_address<const Dependency>(launch.program.dependencies);
  auto* states = at_address<BlockState>(launch.program.states);
  for (std::uint32_t i = 0; i < step.dependencies; ++i) {
    const Dependency dependency = dependencies[step.first_dependency + i];
    const std::uint64_t expected = progress_at(dependency.block, tile, dependency.steps);
    const Wanted wanted{Failure::dependency, -1, -1, expected & 0xffffffffU};
    const auto is_done = [&](std::uint64_t& seen) {
      const std::uint64_t progress = ptx::load_relaxed_sys(&states[dependency.block].progress);
      seen = progress & 0xffffffffU;
      return progress >= expected;
    };
    if (!wait_until(watch, place(step, tile), wanted, is_done)) return false;
    // Acquire: what that block wrote before it told is visible from here on, to all threads of this
    // block after their barrier.
    ptx::load_acquire_gpu(&states[dependency.block].progress);
  }
  return true;
}

template <bool has_tokens, bool has_rings>
__device__ bool Worker<has_tokens, has_rings>::move(const Step& step, int tile) const {
  const auto protocol = static_cast<Protocol>(launch.program.protocol);
  const Wanted wanted{Failure::message, shared.recv.peer, shared.recv.channel, received + 1};
  const auto* in = at_address<const Byte>(slot(shared.recv.in_slots, received));
  const bool is_in_place = shared.in_addresses[step.in_address] != 0;
  const std::uint64_t mapped = shared.out_addresses[step.out_address];
  auto* out = at_address<Byte>(mapped != 0 ? mapped + tile * launch.tile_elements *
                                                          launch.arithmetic.element_bytes
                                           : slot(shared.send.out_slots, sent));
  for (int i = 0; i < step.count; ++i) {
    Piece piece{};
    if ((step.flags & takes_source) != 0) {
      const Extent extent = locate(launch, step.source_buffer, step.source + i, tile);
      piece.local_in = extent.data;
      piece.bytes = extent.bytes;
      piece.scales = launch.arithmetic.scales_input != 0 && step.source_buffer == input_buffer;
    }
    if ((step.flags & gives_destination) != 0) {
      const Extent extent = locate(launch, step.destination_buffer, step.destination + i, tile);
      piece.local_out = extent.data;
      piece.bytes = extent.bytes;
      if ((step.flags & takes_destination) != 0) piece.second_in = extent.data;
    }
    const std::size_t offset = static_cast<std::size_t>(i) * launch.piece_bytes;
    if ((step.flags & takes_message) != 0) piece.message_in = in + offset;
    if (is_in_place) {
      piece.message_in = piece.local_out;
      piece.local_out = nullptr;
      if ((step.flags & gives_message) == 0) continue;
    }
    if ((step.flags & gives_message) != 0) piece.message_out = out + offset;
    piece.number_in = received + 1;
    piece.number_out = sent + 1;
    piece.tag = launch.tag;
    const bool has_message = (step.flags & (takes_message | gives_message)) != 0;
    if (!has_message || protocol == Protocol::simple) {
      move_simple(launch.arithmetic, piece);
    } else if (protocol == Protocol::ll) {
      if (!move_ll(launch.arithmetic, piece, watch, place(step, tile), wanted)) return false;
    } else {
      if (!move_ll128(launch.arithmetic, piece, watch, place(step, tile), wanted)) return false;
    }
  }
  return true;
}

template <bool has_tokens, bool has_rings>
__device__ void Worker<has_tokens, has_rings>::tell(const Step& step, int tile, bool moved) {
  const bool is_simple = static_cast<Protocol>(launch.program.protocol) == Protocol::simple;
  bool signals = is_simple;
  if constexpr (has_tokens) signals = signals || is_token(step);
  if (moved && (step.flags & takes_message) != 0) {
    ++received;
    if (threadIdx.x == receive_thread) {
      auto* credits = at_address<std::uint64_t>(shared.recv.in_given_back);
      // Release: our reads of the slot before the peer's next writes. With LL and LL128 each read
      // was compared with its flag before the barrier, so it is over: relaxed, which waits for no
      // store of ours.
      if (is_simple)
        ptx::store_release_sys(credits, received);
      else
        ptx::store_relaxed_sys(credits, received);
    }
  }
  if (moved && (step.flags & gives_message) != 0) {
    if constexpr (has_rings)
      // Relaxed: the flag's release covers it.
      if (threadIdx.x == send_thread && shared.send.is_ring())
        ptx::store_relaxed_sys(arrived_at(shared.send.out_bytes, launch.program.slots, sent),
                               slot_bytes(step, tile));
    // Release: the message's bytes, stored by all threads before the barrier, first.
    if (signals && threadIdx.x == send_thread)
      ptx::store_release_sys(arrived_at(shared.send.out_arrived, launch.program.slots, sent),
                             flag_of(launch.tag, sent + 1));
    ++sent;
  }
  if ((step.flags & publishes) != 0 && threadIdx.x == dependency_thread) {
    auto* states = at_address<BlockState>(launch.program.states);
    // Release: what this block wrote, for the block that waits.
    ptx::store_release_gpu(&states[blockIdx.x].progress,
                           progress_at(static_cast<int>(blockIdx.x), tile, step.number + 1));
  }
}

// False if the launch is given up; the same for all threads.
template <bool has_tokens, bool has_rings>
__device__ bool Worker<has_tokens, has_rings>::run(const Step& step, int tile) {
  bool moves = slot_bytes(step, tile) > 0;
  bool signals = static_cast<Protocol>(launch.program.protocol) == Protocol::simple;
  if constexpr (has_tokens) {
    moves = moves || is_token(step);
    signals = signals || is_token(step);
  }
  bool goes_on = true;
  if (threadIdx.x == dependency_thread && step.dependencies > 0)
    goes_on = wait_for_dependencies(step, tile);
  if (moves) {
    if (threadIdx.x == receive_thread && signals && (step.flags & takes_message) != 0)
      goes_on = wait_for_arrival<has_rings>(watch, place(step, tile), shared.recv,
                                            launch.program.slots, received, launch.tag);
    if (threadIdx.x == send_thread && (step.flags & gives_message) != 0 &&
        shared.out_addresses[step.out_address] == 0)
      goes_on = wait_for_credit<has_rings>(watch, place(step, tile), shared.send,
                                           launch.program.slots, sent, given_back);
  }
  if (__syncthreads_or(goes_on ? 0 : 1) != 0) return false;
  if (moves) goes_on = move(step, tile);
  if (__syncthreads_or(goes_on ? 0 : 1) != 0) return false;
  tell(step, tile, moves);
  return true;
}

__device__ void copy_words(void* to, const void* from, std::size_t bytes) {
  for (std::size_t i = threadIdx.x; i < bytes / 4; i += threads_per_block)
    static_cast<std::uint32_t*>(to)[i] = static_cast<const std::uint32_t*>(from)[i];
}

template <bool has_tokens, bool has_rings>
__device__ bool run_all(Worker<has_tokens, has_rings>& worker) {
  const std::uint32_t steps = worker.shared.block.steps;
  const auto* all = at_address<const Step>(worker.launch.program.steps);
  for (int tile = 0; tile < worker.launch.tiles; ++tile) {
    for (std::uint32_t i = 0; i < steps; ++i) {
      if (i % staged_steps == 0 && (tile == 0 || steps > staged_steps)) {
        const std::uint32_t left = steps - i;
        __syncthreads();
        copy_words(worker.shared.steps, all + worker.shared.block.first_step + i,
                   (left < staged_steps ? left : staged_steps) * sizeof(Step));
        __syncthreads();
      }
      if (!worker.run(worker.shared.steps[i % staged_steps], tile)) return false;
    }
  }
  return true;
}

template <bool has_tokens, bool has_rings>
__device__ __forceinline__ void interpret(const Launch& launch) {
  __shared__ Shared shared;
  ptx::wait_for_kernel_before();
  copy_words(&shared.block, at_address<const Block>(launch.program.blocks) + blockIdx.x,
             sizeof(Block));
  __syncthreads();
  const auto* links = at_address<const Link>(launch.program.links);
  if (shared.block.send_link >= 0)
    copy_words(&shared.send, links + shared.block.send_link, sizeof(Link));
  if (shared.block.recv_link >= 0)
    copy_words(&shared.recv, links + shared.block.recv_link, sizeof(Link));
  __syncthreads();
  auto* state = at_address<BlockState>(launch.program.states) + blockIdx.x;
  auto* stopped = at_address<std::uint32_t>(launch.program.states +
                                            sizeof(BlockState) * launch.program.block_count);
  // Once given up, the counters of the two ends no longer agree.
  const std::uint64_t count = stamp_begin(launch.stamp);
  if (ptx::load_relaxed_sys(stopped) != 0) return;
  keep_stamp_count(launch.stamp, count);
  LinkCounters* send = nullptr;
  LinkCounters* recv = nullptr;
  if (shared.block.send_link >= 0) send = at_address<LinkCounters>(shared.send.counters);
  if (shared.block.recv_link >= 0) recv = at_address<LinkCounters>(shared.recv.counters);
  Worker<has_tokens, has_rings> worker{
      launch,
      shared,
      {launch.timeout_ns, at_address<Mailbox>(launch.mailbox), stopped},
      state->launches + 1,
      send != nullptr ? send->sent : 0,
      recv != nullptr ? recv->received : 0,
      send != nullptr ? known_given_back<has_rings>(shared.send, *send) : 0};
  const bool complete = worker.agree() && run_all(worker);
  __syncthreads();
  if constexpr (has_rings)
    if (complete && threadIdx.x == send_thread && send != nullptr)
      send->given_back = worker.given_back;
  if (!complete || threadIdx.x != 0) return;
  state->launches = worker.epoch;
  if (send != nullptr) send->sent = worker.sent;
  if (recv != nullptr) recv->received = worker.received;
  if (launch.posts != 0 && shared.block.sends > 0) ++send->heeded;
  if (launch.posts != 0 && shared.block.receives > 0) ++recv->posted;
  stamp_end(launch.stamp);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(threads_per_block, 1)
    unisono_interpret(const __grid_constant__ Launch launch) {
  interpret<false, false>(launch);
}

extern "C" __global__ void __launch_bounds__(threads_per_block, 1)
    unisono_interpret_tokens(const __grid_constant__ Launch launch) {
  interpret<true, false>(launch);
}

extern "C" __global__ void __launch_bounds__(threads_per_block, 1)
    unisono_interpret_rings(const __grid_constant__ Launch launch) {
  interpret<true, true>(launch);
}

}  // namespace unisono::device
