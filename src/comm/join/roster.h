// What all ranks of a job know of all: which node and host each is on, what they have agreed on,
// and what follows from it. A census of each subtree goes up the tree; the roster comes down. Both
// are runs of ranks, so that neither grows with the ranks where hosts are filled in order.
#pragma once

#include <unisono/result.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/key.h"

namespace unisono::comm {

// What must be the same on all ranks has at most so many bytes.
inline constexpr std::size_t max_common_bytes = 1024;

// What a rank says of itself.
struct SelfDescription {
  std::string host;                      // ranks of one host share its memory and cores
  std::string node;                      // ranks of one node talk through memory; empty: the host
  std::uint32_t cores = 1;               // that this rank knows of; at least 1
  std::uint32_t least = UINT32_MAX;      // all learn the least of all ranks'
  std::uint32_t cache_kib = UINT32_MAX;  // of a core's own cache; all learn the least
  std::string location;                  // of the node (topo/levels.h); empty: not known
  bool location_is_launchers = false;    // rather than set by the user
  // Must be the same on all ranks, and what is wrong when it is not.
  std::vector<std::byte> common;
  Error (*explain)(int rank, std::span<const std::byte> common, int other,
                   std::span<const std::byte> its_common) = nullptr;
};

// Of a range of ranks.
struct Census {
  struct Run {
    std::uint32_t ranks = 1;
    // 64 bits of a code of the name under the job's key: the same for the same name, and of
    // 100,000 names two are taken for one in one job of 3 billion.
    std::uint64_t host = 0;
    std::uint64_t node = 0;
    std::uint32_t cores = 1;
    std::string location;
    bool location_is_launchers = false;
    bool operator==(const Run&) const = default;
  };
  std::uint32_t least = UINT32_MAX;
  std::uint32_t cache_kib = UINT32_MAX;
  std::vector<std::byte> common;  // the first rank's, and so everybody's
  std::vector<Run> runs;
  // By rank, where the job has so few that all learn all; else empty.
  std::vector<std::string> addresses;

  Census() = default;
  Census(const SelfDescription& self, const Key& job_key);
  // Takes in what follows in rank order.
  void append(const Census& next);
  // Ranks must name the same levels, and those of a node the same units: misuse names two ranks and
  // their values. Where no user has set any, the locations are dropped instead, and the text says
  // why; it is empty where all is well.
  Result<std::string> settle_locations();
};
std::vector<std::byte> encode(const Census& census);
// Of exactly so many ranks, with or without their addresses.
Result<Census> decode_census(std::span<const std::byte> bytes, int ranks, bool has_addresses);

class Roster {
 public:
  Roster() = default;
  // Of all ranks.
  explicit Roster(const Census& census);

  int ranks() const { return starts_.empty() ? 0 : starts_.back(); }
  // Nodes and hosts are numbered in the order in which ranks first name them.
  int node_of(int rank) const { return place_of(rank).first; }
  int host_of(int rank) const { return place_of(rank).second; }
  int nodes() const { return nodes_; }
  int ranks_on_host(int host) const;
  int ranks_on_node(int node) const;
  int hosts() const { return hosts_; }
  int most_on_a_host() const { return most_on_a_host_; }
  // Ranks for each core of the host where they are most; at least 1.
  double oversubscription() const;
  std::uint32_t least() const { return least_; }
  std::uint32_t cache_kib() const { return cache_kib_; }
  // The runs that it holds.
  std::size_t blocks() const { return blocks_.size(); }
  // Consecutive nodes of one location; none where no location is known.
  struct Located {
    std::uint32_t nodes = 1;
    std::string location;
    bool operator==(const Located&) const = default;
  };
  const std::vector<Located>& located() const { return located_; }

  std::vector<std::byte> encode() const;
  static Result<Roster> decode(std::span<const std::byte> bytes, int ranks);

 private:
  // `pieces` times `ranks_each` consecutive ranks; from piece to piece the node, the host, or both,
  // are the next one or the same.
  struct Block {
    std::uint32_t pieces = 1;
    std::uint32_t ranks_each = 1;
    std::uint32_t node = 0;
    std::uint32_t host = 0;
    std::uint8_t node_step = 0;
    std::uint8_t host_step = 0;
  };
  std::pair<int, int> place_of(int rank) const;
  int ranks_on(int wanted, std::uint32_t Block::* first, std::uint8_t Block::* step) const;
  void add(std::uint32_t ranks, std::uint32_t node, std::uint32_t host);
  void locate(const std::string& location);
  void finish();

  std::vector<Block> blocks_;
  std::vector<int> starts_;  // where each begins, and the number of ranks
  std::vector<Located> located_;
  int nodes_ = 0;
  int hosts_ = 0;
  int most_on_a_host_ = 0;
  std::uint32_t least_ = UINT32_MAX;
  std::uint32_t cache_kib_ = UINT32_MAX;
  // The host with the most ranks for each core.
  std::uint32_t fullest_ranks_ = 1;
  std::uint32_t fullest_cores_ = 1;
};

}  // namespace unisono::comm
