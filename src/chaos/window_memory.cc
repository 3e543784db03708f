#include "chaos/window_memory.h"

#include <algorithm>
#include <utility>

#include "base/str.h"
#include "chaos/data.h"

namespace unisono::chaos {
namespace {

constexpr std::size_t guard_bytes = 64;
constexpr std::byte canary{0xc7};
constexpr std::byte untouched{0x5a};

}  // namespace

WindowMemory::WindowMemory(const Operation& operation, std::vector<int> members, int me, int nodes)
    : operation_(operation), members_(std::move(members)), me_(me), nodes_(nodes) {
  const auto ranks = static_cast<int>(members_.size());
  for (int step = 0; step < ranks; ++step) peers_.push_back((me + step) % ranks);
  slot_bytes_ = static_cast<std::size_t>(operation.count) * size_bytes(operation.type);
  bytes_.assign(bytes_of(me) + 2 * guard_bytes, canary);
  std::ranges::fill(window(), untouched);
}

std::vector<std::byte> WindowMemory::message(int sender, int receiver, int round) const {
  Operation of = operation_;
  of.number += 1000 * static_cast<std::uint64_t>(receiver * rounds + round + 1);
  return message_of(of, members_[static_cast<std::size_t>(sender)]);
}

bool WindowMemory::is_neighbour(int rank) const {
  return members_[static_cast<std::size_t>(rank)] % nodes_ ==
         members_[static_cast<std::size_t>(me_)] % nodes_;
}

std::size_t WindowMemory::bytes_of(int rank) const {
  constexpr std::uint64_t most_more_bytes = 24;
  const auto member = static_cast<std::uint64_t>(members_[static_cast<std::size_t>(rank)]);
  return members_.size() * slot_bytes_ + hash(operation_.number, member, 81) % most_more_bytes;
}

std::span<std::byte> WindowMemory::window() {
  return std::span(bytes_).subspan(guard_bytes, bytes_.size() - 2 * guard_bytes);
}

std::span<const std::byte> WindowMemory::window() const {
  return std::span(bytes_).subspan(guard_bytes, bytes_.size() - 2 * guard_bytes);
}

std::span<const std::byte> WindowMemory::slot(int sender) const {
  return window().subspan(offset_of(sender), slot_bytes_);
}

void WindowMemory::close() {
  std::ranges::fill(bytes_, canary);
  is_closed_ = true;
}

// Each byte may be that of any round: a put that failed may have written a part.
std::optional<std::size_t> WindowMemory::touched_byte(int sender) const {
  std::vector<std::vector<std::byte>> allowed{std::vector<std::byte>(slot_bytes_, untouched)};
  for (int round = 0; round < rounds; ++round) allowed.push_back(message(sender, me_, round));
  const std::span<const std::byte> found = slot(sender);
  for (std::size_t i = 0; i < slot_bytes_; ++i)
    if (std::ranges::none_of(allowed, [&](const auto& bytes) { return bytes[i] == found[i]; }))
      return offset_of(sender) + i;
  return std::nullopt;
}

std::optional<std::size_t> WindowMemory::touched_byte() const {
  const std::size_t slots = is_closed_ ? 0 : members_.size();
  const std::size_t behind_slots = guard_bytes + slots * slot_bytes_;
  const std::size_t end = guard_bytes + window().size();
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    if (i >= guard_bytes && i < behind_slots) continue;
    const bool is_in_window = i >= guard_bytes && i < end && !is_closed_;
    if (bytes_[i] != (is_in_window ? untouched : canary)) return i;
  }
  for (std::size_t sender = 0; sender < slots; ++sender)
    if (const auto at = touched_byte(static_cast<int>(sender))) return guard_bytes + *at;
  return std::nullopt;
}

std::optional<std::string> WindowMemory::find_touched() const {
  const auto at = touched_byte();
  if (!at) return std::nullopt;
  return str("byte ", *at, " of the ", bytes_.size(), " of a window and its guards was written ",
             is_closed_ ? "after all puts had ended" : "by a rank that may not", ": ",
             describe(operation_));
}

}  // namespace unisono::chaos
