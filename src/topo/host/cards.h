// Which network cards carry the data of which GPU, and of which NUMA node's processors.
//
// Every process of a host reads the same files and so finds the same: nothing is exchanged.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "topo/host/machine.h"

namespace unisono::topo {

struct NearCard {
  std::size_t card = 0;  // in Machine::cards
  Distance distance = Distance::sys;
  int users = 1;  // GPUs, or NUMA nodes, that have it
};

// For each place, the cards that it should use, the first of them before the others.
//
// Only cards that are at the least distance from a place are near it. All places are looked at
// together, those with the nearest cards first, so that as few as possible have the same: each gets
// the card that fewest others have, and of equal ones that whose other ports fewest have. Cards
// that are left are dealt out evenly among the places that they are near; what does not go round is
// shared by all of these. Cards that are down are left out, and so are those with less than a
// quarter of the speed of the fastest, as those for administration have.
std::vector<std::vector<NearCard>> assign_cards(std::span<const Place> places,
                                                std::span<const Card> cards);

// A GPU or the processors of a NUMA node, with the cards of its own.
struct CardUser {
  std::optional<PciAddress> gpu;
  int node = unknown_node;
  std::vector<NearCard> cards;
  std::string name() const;  // "GPU 0000:07:00.0", "NUMA node 0"
};

struct CardMap {
  Machine machine;
  std::vector<CardUser> gpus;   // as Machine::gpus
  std::vector<CardUser> nodes;  // as Machine::nodes; one for the host where these are not known

  // The user for a rank: its GPU if it has one that is known here, or else its processor's NUMA
  // node.
  const CardUser& user_of(const std::optional<PciAddress>& gpu, int processor) const;
  // How many cards every GPU has, or every NUMA node: ranks of unlike users can take so many.
  std::size_t common_cards(const CardUser& user) const;
};

CardMap map_cards(Machine machine);

// "mlx5_0 (ibp12s0, 0000:0c:00.0)"
std::string describe(const Card& card);
// "GPU 0000:07:00.0 uses mlx5_0 (ibp12s0, 0000:0c:00.0): PXB, through several PCIe switches", or
// why there is no card.
std::string describe(const CardMap& map, const CardUser& user);

}  // namespace unisono::topo
