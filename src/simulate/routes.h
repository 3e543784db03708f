// Which links a message goes over, of a machine whose network is shared by flows.
#pragma once

#include <cstdint>
#include <vector>

#include "simulate/flows.h"
#include "simulate/link_use.h"
#include "simulate/machine.h"

namespace unisono::simulate {

class Routes {
 public:
  // `port_gb_s` by port.
  Routes(const Machine& machine, int nodes, const std::vector<double>& port_gb_s);

  struct Ends {
    std::uint32_t send_port, recv_port;
    int from_node, to_node;
    std::uint32_t flow;  // messages of one flow take the same way
  };
  // Out of the sender's port, up to the smallest unit that holds both nodes, and down again. Valid
  // until the next call.
  const std::vector<FlowNetwork::Link>& between(const Ends& ends);

  FlowNetwork& network() { return network_; }
  // All uplinks, each way, by level and unit.
  std::vector<LinkUse> use() const;

 private:
  struct Unit {
    FlowNetwork::Link first_up, first_down;
    int links;
  };
  void add_uplinks(const Level& level, int units);

  const Machine& machine_;
  FlowNetwork network_;
  std::vector<FlowNetwork::Link> out_, in_;  // by port
  std::vector<std::vector<Unit>> units_;     // by level; empty where uplinks do not limit
  std::vector<FlowNetwork::Link> path_;
};

}  // namespace unisono::simulate
