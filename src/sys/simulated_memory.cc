// Memory of processes that others of their host write and read, in the simulated world.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/str.h"
#include "sys/simulated_process.h"

namespace unisono::sys {

ProcessIdentity SimulatedWorld::process() {
  int first = process_;
  if (simulation_.options_.hosts_share_memory)
    for (first = 0; simulation_.worlds_[static_cast<std::size_t>(first)]->host_ != host_;) ++first;
  return {.pid = first + 1, .start_time = 1};
}

std::uint64_t SimulatedWorld::address_of(void* data, std::size_t bytes) {
  constexpr std::uint64_t page = 4096;
  const std::uint64_t address = simulation_.next_address_;
  // The page behind it belongs to nothing.
  simulation_.next_address_ += (bytes / page + 2) * page;
  simulation_.named_memory_[address] = {process().pid, {static_cast<std::byte*>(data), bytes}};
  return address;
}

std::byte* Simulation::find_memory(std::int32_t pid, std::uint64_t address,
                                   std::size_t bytes) const {
  auto found = named_memory_.upper_bound(address);
  if (found == named_memory_.begin()) return nullptr;
  const auto& [start, named] = *--found;
  const std::uint64_t offset = address - start;
  const std::size_t all = named.bytes.size();
  if (named.pid != pid || offset > all || bytes > all - offset) return nullptr;
  return named.bytes.data() + offset;
}

std::byte* SimulatedWorld::find_memory(const ProcessIdentity& owner, std::uint64_t address) {
  return owner == process() ? simulation_.find_memory(owner.pid, address, 0) : nullptr;
}

template <class Move>
Status SimulatedWorld::move_memory(const ProcessIdentity& owner, std::uint64_t address,
                                   std::size_t bytes, std::string_view what, Move move) {
  const std::size_t half = bytes / 2;
  std::size_t at = 0;
  for (const std::size_t part : std::array{half, bytes - half}) {
    if (simulation_.random() % 2 == 0) simulation_.interrupt(process_);
    const auto& worlds = simulation_.worlds_;
    const bool is_there = owner.pid > 0 && owner.pid <= static_cast<int>(worlds.size());
    const SimulatedWorld* const there =
        is_there ? worlds[static_cast<std::size_t>(owner.pid - 1)].get() : nullptr;
    const bool is_reached = there != nullptr && there->is_alive_ && there->host_ == host_;
    std::byte* const place =
        is_reached ? simulation_.find_memory(owner.pid, address + at, bytes - at) : nullptr;
    if (place == nullptr)
      return system_error(str(what, " ", bytes, " bytes of process ", owner.pid, "'s memory"),
                          is_reached ? EFAULT : ESRCH);
    move(place, at, part);
    at += part;
  }
  return {};
}

Status SimulatedWorld::write_memory(const ProcessIdentity& owner, std::uint64_t address,
                                    std::span<const std::byte> bytes) {
  simulation_.reach(process_, "memory.write");
  return move_memory(owner, address, bytes.size(), "writing",
                     [&](std::byte* place, std::size_t at, std::size_t part) {
                       std::memcpy(place, bytes.data() + at, part);
                     });
}

Status SimulatedWorld::read_memory(const ProcessIdentity& owner, std::uint64_t address,
                                   std::span<std::byte> bytes) {
  simulation_.reach(process_, "memory.read");
  return move_memory(owner, address, bytes.size(), "reading",
                     [&](const std::byte* place, std::size_t at, std::size_t part) {
                       std::memcpy(bytes.data() + at, place, part);
                     });
}

}  // namespace unisono::sys
