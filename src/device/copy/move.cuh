// One piece of a step: from (message, source, destination) to (destination, message), in each
// protocol, by all threads of a block.
//
// A message's slot, for each chunk of it at multiples of Launch::piece_bytes:
//   simple  the bytes; the slot was announced by a signal, so it is plain memory by now
//   ll      16-byte stores of (data, flag, data, flag): each half tells its own arrival
//   ll128   lines of 120 bytes and a flag, each stored by 8 neighbouring threads at once
// The flag is the message's number from 1 on and its call's tag; a slot's older messages have
// smaller numbers. (LL's has 32 bits: it could be mistaken only for a message of exactly 2^32
// before.)
#pragma once

#include <cstdint>

#include "device/common.h"
#include "device/copy/local.cuh"
#include "device/ptx/memory.cuh"
#include "device/reduce/units.cuh"
#include "device/sync/wait.cuh"

namespace unisono::device {

// Null where the step does not take or give it.
struct Piece {
  const Byte* message_in;
  const Byte* local_in;   // the source; of a reduce, what is added to the destination
  const Byte* second_in;  // the destination of a reduce
  Byte* local_out;
  Byte* message_out;
  std::int64_t bytes;
  std::uint64_t number_in;
  std::uint64_t number_out;
  std::uint32_t tag;
  bool scales;  // local_in
};

// Units of local memory, before anything is awaited, scaled.
__device__ __forceinline__ uint4 scaled(const Arithmetic& arithmetic, const Piece& piece,
                                        uint4 unit) {
  return piece.scales ? scale_any(arithmetic, unit) : unit;
}

inline constexpr int batch = 4;  // independent units that a thread has under way

__device__ inline void move_aligned(const Arithmetic& arithmetic, const Piece& piece,
                                    std::int64_t units) {
  // A message is as plain as the destination of a reduce here.
  const auto* first =
      reinterpret_cast<const uint4*>(piece.message_in ? piece.message_in : piece.second_in);
  const auto* local = reinterpret_cast<const uint4*>(piece.local_in);
  auto* out = reinterpret_cast<uint4*>(piece.local_out);
  auto* message = reinterpret_cast<uint4*>(piece.message_out);
  const bool combines = first != nullptr && local != nullptr;
  const uint4* only = first != nullptr ? first : local;
  for (std::int64_t base = threadIdx.x; base < units; base += batch * threads_per_block) {
    uint4 value[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const std::int64_t at = base + i * threads_per_block;
      if (at < units) value[i] = only[at];
    }
    if (combines) {
      uint4 other[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const std::int64_t at = base + i * threads_per_block;
        if (at < units) other[i] = scaled(arithmetic, piece, local[at]);
      }
      combine_units<batch>(arithmetic, value, other);
    } else if (piece.scales) {
#pragma unroll
      for (int i = 0; i < batch; ++i) value[i] = scale_any(arithmetic, value[i]);
    }
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const std::int64_t at = base + i * threads_per_block;
      if (at >= units) continue;
      if (out != nullptr) out[at] = value[i];
      if (message != nullptr) message[at] = value[i];
    }
  }
}

// One unit at a time, whatever the alignment; from byte `from` on.
__device__ inline void move_any(const Arithmetic& arithmetic, const Piece& piece,
                                std::int64_t from) {
  const Byte* first = piece.message_in ? piece.message_in : piece.second_in;
  for (std::int64_t at = from + threadIdx.x * unit_bytes; at < piece.bytes;
       at += threads_per_block * unit_bytes) {
    const std::int64_t left = piece.bytes - at;
    uint4 value[1];
    if (piece.local_in != nullptr)
      value[0] = scaled(arithmetic, piece, load_unit(piece.local_in + at, left));
    if (first != nullptr) {
      uint4 other[1] = {load_unit(first + at, left)};
      if (piece.local_in != nullptr) combine_units<1>(arithmetic, other, value);
      value[0] = other[0];
    }
    if (piece.local_out != nullptr) store_unit(piece.local_out + at, value[0], left);
    if (piece.message_out != nullptr) store_unit(piece.message_out + at, value[0], left);
  }
}

__device__ inline void move_simple(const Arithmetic& arithmetic, const Piece& piece) {
  const bool aligned = is_aligned(piece.message_in, 16) && is_aligned(piece.local_in, 16) &&
                       is_aligned(piece.second_in, 16) && is_aligned(piece.local_out, 16);
  const std::int64_t units = aligned ? piece.bytes / unit_bytes : 0;
  if (units > 0) move_aligned(arithmetic, piece, units);
  move_any(arithmetic, piece, units * static_cast<std::int64_t>(unit_bytes));
}

// The local input of a unit of LL or LL128, already combined where it is of two.
__device__ __forceinline__ uint4 load_local(const Arithmetic& arithmetic, const Piece& piece,
                                            std::int64_t at, std::int64_t bytes) {
  uint4 value[1] = {};
  const std::int64_t left = bytes < piece.bytes - at ? bytes : piece.bytes - at;
  if (piece.local_in != nullptr)
    value[0] = scaled(arithmetic, piece, load_unit(piece.local_in + at, left));
  if (piece.second_in != nullptr) {
    uint4 other[1] = {load_unit(piece.second_in + at, left)};
    combine_units<1>(arithmetic, other, value);
    return other[0];
  }
  return value[0];
}

// False if a wait was given up.
__device__ inline bool move_ll(const Arithmetic& arithmetic, const Piece& piece, const Watch& watch,
                               const Place& place, const Wanted& wanted) {
  const auto units = (piece.bytes + 7) / static_cast<std::int64_t>(ll_unit_payload);
  const std::uint32_t flag_in = number_of(piece.number_in);
  const std::uint32_t flag_out = number_of(piece.number_out);
  const auto* in = reinterpret_cast<const uint4*>(piece.message_in);
  auto* message = reinterpret_cast<uint4*>(piece.message_out);
  for (std::int64_t base = threadIdx.x; base < units; base += batch * threads_per_block) {
    uint4 arrived[batch];
    uint4 value[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const std::int64_t at = base + i * threads_per_block;
      if (at >= units) continue;
      if (in != nullptr) arrived[i] = ptx::load_relaxed_sys(in + at);
      value[i] = load_local(arithmetic, piece, at * 8, 8);
    }
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const std::int64_t at = base + i * threads_per_block;
      if (at >= units) continue;
      if (in != nullptr) {
        // Relaxed: what is read carries its own flag.
        const auto has_arrived = [&](std::uint64_t& seen) {
          if (arrived[i].y == flag_in && arrived[i].w == flag_in + piece.tag) return true;
          seen = arrived[i].y;
          arrived[i] = ptx::load_relaxed_sys(in + at);
          return false;
        };
        if (!wait_until(watch, place, wanted, has_arrived)) return false;
        uint4 data[1] = {{arrived[i].x, arrived[i].z, 0, 0}};
        if (piece.local_in != nullptr) {
          const uint4 local[1] = {value[i]};
          combine_units<1>(arithmetic, data, local);
        }
        value[i] = data[0];
      }
      if (piece.local_out != nullptr)
        store_word(piece.local_out + at * 8, low_word(value[i]), piece.bytes - at * 8);
      if (message != nullptr)
        ptx::store_relaxed_sys(message + at,
                               {value[i].x, flag_out, value[i].y, flag_out + piece.tag});
    }
  }
  return true;
}

// False if a wait was given up. A warp moves four lines; of each, eight threads 16 bytes each, the
// last one 8 bytes and the flag.
__device__ inline bool move_ll128(const Arithmetic& arithmetic, const Piece& piece,
                                  const Watch& watch, const Place& place, const Wanted& wanted) {
  constexpr int warp_lines = 4;
  constexpr int warps = threads_per_block / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const bool has_flag = lane % 8 == 7;
  const std::int64_t lines = (piece.bytes + 119) / static_cast<std::int64_t>(ll128_line_payload);
  for (std::int64_t first = threadIdx.x / 32 * warp_lines; first < lines;
       first += warps * warp_lines) {
    const std::int64_t line = first + lane / 8;
    const bool takes_part = line < lines;
    const std::int64_t at = line * 120 + lane % 8 * 16;
    const std::int64_t own = has_flag ? 8 : 16;
    const std::int64_t left = piece.bytes - at < own ? piece.bytes - at : own;
    const std::int64_t offset = line * 128 + lane % 8 * 16;
    uint4 value[1] = {};
    if (takes_part) value[0] = load_local(arithmetic, piece, at, own);
    if (piece.message_in != nullptr) {
      uint4 arrived[1] = {};
      const auto has_arrived = [&](std::uint64_t& seen) {
        if (!takes_part) return true;
        arrived[0] =
            ptx::load_relaxed_sys(reinterpret_cast<const uint4*>(piece.message_in + offset));
        const std::uint64_t flag = high_word(arrived[0]);
        seen = number_of(flag);
        return !has_flag || flag == flag_of(piece.tag, piece.number_in);
      };
      if (!wait_until_in_warp(watch, place, wanted, has_arrived)) return false;
      if (piece.local_in != nullptr) combine_units<1>(arithmetic, arrived, value);
      value[0] = arrived[0];
    }
    if (!takes_part) continue;
    if (piece.local_out != nullptr && left > 0) store_unit(piece.local_out + at, value[0], left);
    if (piece.message_out != nullptr) {
      if (has_flag) value[0] = unit_of(low_word(value[0]), flag_of(piece.tag, piece.number_out));
      ptx::store_relaxed_sys(reinterpret_cast<uint4*>(piece.message_out + offset), value[0]);
    }
  }
  return true;
}

}  // namespace unisono::device
