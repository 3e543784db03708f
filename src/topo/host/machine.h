// Reads which NUMA nodes, GPUs and network cards a host has from the kernel's device files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topo/host/place.h"

namespace unisono::topo {

struct NumaNode {
  int number = 0;
  std::string processors;  // "0-15,64-79"
};

// One of NVIDIA's GPUs.
struct Gpu {
  PciAddress address;
  Place place;
};

// A port of a network card: a PCI function that has network interfaces, RDMA devices or both. In a
// virtual machine it may be a device without a PCI address.
struct Card {
  std::optional<PciAddress> address;
  Place place;
  std::vector<std::string> interfaces;    // "eth2"
  std::vector<std::string> rdma_devices;  // "mlx5_0"
  bool is_up = false;                     // an interface, or a port of an RDMA device
  std::int64_t mbit_per_second = 0;       // the fastest; 0: unknown
  // The first RDMA device, or else the first interface.
  const std::string& name() const;
};

struct Machine {
  std::vector<NumaNode> nodes;
  std::vector<Gpu> gpus;    // by PCI address
  std::vector<Card> cards;  // by PCI address, those without one last
  // Says for a person which part could not be read; empty if all was read.
  std::string note;

  // The NUMA node that has the processor; unknown_node where that cannot be read.
  int node_of_processor(int processor) const;
};

// Reads a tree of device files, "/sys" or any like it. Whatever is missing or malformed there is
// left out; the time and the result are bounded.
Machine read_machine(const std::string& root);

}  // namespace unisono::topo
