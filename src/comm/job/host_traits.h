// What selection knows of the hosts of a job.
#pragma once

namespace unisono::comm {

// The same on every rank.
struct HostTraits {
  // Ranks for each core of the host where they are most; at least 1.
  double oversubscription = 1;
  // How many times as fast as slots single copies by the kernel are, the least of all ranks. 1
  // where they are not used, or are used because that is set.
  double single_copy_gain = 1;
};

}  // namespace unisono::comm
