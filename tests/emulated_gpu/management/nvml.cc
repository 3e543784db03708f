// As much of libnvidia-ml.so.1 as src/sys/cuda/nvml.cc calls, for the emulated devices. It is there
// where UNISONO_EMULATED_NVML says what connects all of them: nvlink or pcie.
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

constexpr int success = 0, uninitialised = 1, not_found = 6;
constexpr int capability_nvlink = 2, not_supported = 3;

std::string_view links() {
  const char* const text = std::getenv("UNISONO_EMULATED_NVML");
  return text != nullptr ? text : "";
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the library's names
extern "C" {

int nvmlInit_v2() { return links().empty() ? uninitialised : success; }

// The emulated driver's device i has a UUID of one byte, i + 1, and zeros.
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  static char devices[10];
  for (int i = 0; i < 9; ++i)
    if (uuid == "GPU-0" + std::to_string(i + 1) + "000000-0000-0000-0000-000000000000") {
      *device = &devices[i];
      return success;
    }
  return not_found;
}

int nvmlDeviceGetP2PStatus(void*, void*, int capability, int* status) {
  *status = capability == capability_nvlink && links() == "nvlink" ? success : not_supported;
  return success;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
