// Memory of processes that others of their host write to, in the simulated world.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
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

// The writer may lose the processor before the kernel copies, and in the middle of it.
Status SimulatedWorld::write_memory(const ProcessIdentity& owner, std::uint64_t address,
                                    std::span<const std::byte> bytes) {
  simulation_.reach(process_, "memory.write");
  const std::size_t half = bytes.size() / 2;
  std::size_t left = bytes.size();
  for (const auto part : std::array{bytes.first(half), bytes.subspan(half)}) {
    if (simulation_.random() % 2 == 0) simulation_.interrupt(process_);
    const auto& worlds = simulation_.worlds_;
    const bool is_there = owner.pid > 0 && owner.pid <= static_cast<int>(worlds.size());
    const SimulatedWorld* const there =
        is_there ? worlds[static_cast<std::size_t>(owner.pid - 1)].get() : nullptr;
    const bool is_reached = there != nullptr && there->is_alive_ && there->host_ == host_;
    std::byte* const place =
        is_reached ? simulation_.find_memory(owner.pid, address, left) : nullptr;
    if (place == nullptr)
      return system_error(
          str("writing ", bytes.size(), " bytes of process ", owner.pid, "'s memory"),
          is_reached ? EFAULT : ESRCH);
    std::memcpy(place, part.data(), part.size());
    address += part.size();
    left -= part.size();
  }
  return {};
}

}  // namespace unisono::sys
