#include "support/emulated_device.h"

#include <dlfcn.h>

#include <cstdlib>
#include <iostream>
#include <random>
#include <type_traits>

namespace unisono::test {

std::uint64_t test_seed() {
  const char* const given = std::getenv("UNISONO_TEST_SEED");
  const std::uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::cout << "UNISONO_TEST_SEED=" << seed << " replays this test\n";
  if (const EmulatedDevice* const device = EmulatedDevice::find()) device->seed(seed);
  return seed;
}

const EmulatedDevice* EmulatedDevice::find() {
  static const EmulatedDevice found = [] {
    EmulatedDevice all{};
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return all;
    const auto look_up = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(  //
          dlsym(library, name));
    };
    look_up(all.seed, "unisono_emulated_seed");
    look_up(all.trace, "unisono_emulated_trace");
    look_up(all.drive_by_calls, "unisono_emulated_drive_by_calls");
    look_up(all.step, "unisono_emulated_step");
    look_up(all.set_nvlink, "unisono_emulated_set_nvlink");
    return all;
  }();
  return found.step != nullptr ? &found : nullptr;
}

DriveByCalls::DriveByCalls() {
  if (const EmulatedDevice* const device = EmulatedDevice::find()) device->drive_by_calls(true);
}

DriveByCalls::~DriveByCalls() {
  if (const EmulatedDevice* const device = EmulatedDevice::find()) device->drive_by_calls(false);
}

}  // namespace unisono::test
