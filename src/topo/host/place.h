// Where a device is in a host, and how far two devices are from each other.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::topo {

struct PciAddress {
  std::uint32_t domain = 0;
  std::uint8_t bus = 0;
  std::uint8_t device = 0;
  std::uint8_t function = 0;
  auto operator<=>(const PciAddress&) const = default;
  // Ports of one card are functions of one device.
  bool same_card(const PciAddress& other) const;
  std::string text() const;  // "0000:53:00.0"
};

// Reads "0000:53:00.0", as the kernel and the CUDA driver write it; the domain has up to 8 digits.
std::optional<PciAddress> parse_pci_address(std::string_view text);

inline constexpr int unknown_node = -1;

// A device, or the processors of a NUMA node, which have no path.
struct Place {
  std::string root;              // the host bridge, "pci0000:50"; empty without a path
  std::vector<PciAddress> path;  // from below the host bridge to the device itself
  int node = unknown_node;       // NUMA node
};

// NVML's levels, the nearest first: what the way between two devices leads through.
enum class Distance : std::uint8_t {
  pix,   // at most one PCIe switch
  pxb,   // several PCIe switches
  phb,   // the PCIe host bridge
  node,  // what connects the host bridges of a NUMA node
  sys,   // what connects NUMA nodes
};
inline constexpr int distance_count = 5;
std::string_view name(Distance distance);     // "PIX"
std::string_view meaning(Distance distance);  // "through one PCIe switch"

// Two places of one host. Where NUMA nodes are not known, the way may lead through all of it.
Distance distance_between(const Place& one, const Place& other);

}  // namespace unisono::topo
