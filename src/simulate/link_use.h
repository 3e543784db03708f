// What went over the links between units of the network.
#pragma once

namespace unisono::simulate {

struct LinkUse {
  int level = 0;  // index into Machine::levels
  int unit = 0;
  int number = 0;  // of the unit's links in this direction
  bool up = false;
  double capacity_gb_s = 0;
  double bytes = 0;
};

}  // namespace unisono::simulate
