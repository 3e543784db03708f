// A rank's memory of a window, and who may have written what to it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chaos/scenario.h"

namespace unisono::chaos {

// Each rank of the window has a slot in it, and puts to that alone. Some bytes before and behind
// the window belong to nobody.
class WindowMemory {
 public:
  static constexpr int rounds = 2;
  // `members` are the group's ranks by their numbers in the job, `me` this one's place.
  WindowMemory(const Operation& operation, std::vector<int> members, int me, int nodes);

  // Gives what a rank puts to another one's memory in a round; both are named by their places.
  std::vector<std::byte> message(int sender, int receiver, int round) const;
  // The places of all ranks, from this rank on.
  const std::vector<int>& peers() const { return peers_; }
  // Whether that rank's memory may be loaded here: it is on this host.
  bool is_neighbour(int rank) const;
  std::size_t offset_of(int sender) const { return static_cast<std::size_t>(sender) * slot_bytes_; }
  // Gives the size of a rank's window; ranks have windows of different sizes.
  std::size_t bytes_of(int rank) const;
  std::span<std::byte> window();
  std::span<const std::byte> window() const;
  std::span<const std::byte> slot(int sender) const;
  // No put is allowed from now on.
  void close();
  // Says what was written where no rank may write; nothing if nothing was.
  std::optional<std::string> find_touched() const;

 private:
  std::optional<std::size_t> touched_byte() const;
  // Finds a byte of the slot of `sender` that none of its rounds can have put there.
  std::optional<std::size_t> touched_byte(int sender) const;

  const Operation operation_;
  const std::vector<int> members_;
  const int me_;
  const int nodes_;
  std::vector<int> peers_;
  std::size_t slot_bytes_ = 0;
  std::vector<std::byte> bytes_;
  bool is_closed_ = false;
};

}  // namespace unisono::chaos
