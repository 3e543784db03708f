// The emulated GPU (tests/emulated_gpu), where it is the one that tests run on, and their seeds.
#pragma once

#include <cstdint>

namespace unisono::test {

// The seed of a test: UNISONO_TEST_SEED, if that is set, else a random one. Prints it, and seeds
// the emulated devices with it.
std::uint64_t test_seed();

class EmulatedDevice {
 public:
  // nullptr: tests run on real GPUs, or there are none.
  static const EmulatedDevice* find();

  void (*seed)(std::uint64_t);
  // A hash of what streams and blocks have done since the seed was set.
  std::uint64_t (*trace)();
  // Whether devices go on only in the driver's calls, and in step(). Where all calls are made by
  // one thread, a seed then gives one interleaving.
  void (*drive_by_calls)(bool does);
  void (*step)();
  // Whether NVLink connects two devices, which it does at first, or PCIe. Between tests.
  void (*set_nvlink)(int one, int other, bool is_there);
};

// Drives the emulated devices by calls while it exists.
class DriveByCalls {
 public:
  DriveByCalls();
  ~DriveByCalls();
  DriveByCalls(const DriveByCalls&) = delete;
  DriveByCalls& operator=(const DriveByCalls&) = delete;
};

}  // namespace unisono::test
