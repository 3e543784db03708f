#include "engine/gpu/stamps.h"

#include <algorithm>

namespace unisono::engine::gpu {
namespace {

constexpr std::uint64_t tags = std::uint64_t{1} << (64 - device::stamp_tag_shift);
constexpr std::uint64_t call_mask = (std::uint64_t{1} << device::stamp_tag_shift) - 1;

}  // namespace

// Kernels may have stored while the board was copied. What was overwritten has another tag, and
// what is older than its begin is of another launch.
std::vector<SeenLaunch> read_stamps(const device::StampBoard& board, std::uint64_t from) {
  std::vector<SeenLaunch> out;
  const std::uint64_t ended = board.ended >> 32;
  const std::uint64_t oldest = ended - std::min(ended, device::stamp_slots - 1);
  bool is_current_over = board.current.time == 0;
  for (std::uint64_t number = std::min(std::max(from, oldest), ended > 0 ? ended - 1 : 0);
       number < ended; ++number) {
    const device::LaunchStamp& stamp = board.stamps[number % device::stamp_slots];
    const bool is_whole = stamp.begin.call >> device::stamp_tag_shift == number % tags &&
                          stamp.begin.time != 0 && stamp.end >= stamp.begin.time;
    const std::uint64_t call = stamp.begin.call & call_mask;
    if (is_whole && stamp.begin.time == board.current.time && call == board.current.call)
      is_current_over = true;
    if (is_whole && number >= from) out.push_back({number, call, stamp.begin.time, stamp.end});
  }
  if (!is_current_over)
    out.push_back({ended, board.current.call & call_mask, board.current.time, 0});
  return out;
}

}  // namespace unisono::engine::gpu
