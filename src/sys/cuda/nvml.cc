#include "sys/cuda/nvml.h"

#include <dlfcn.h>

#include <cstddef>

#include "base/error.h"
#include "sys/loaded_functions.h"

namespace unisono::sys::cuda {
namespace {

struct NvmlDevice;
using NvmlResult = int;  // 0: success
constexpr NvmlResult nvml_success = 0;
constexpr int capability_nvlink = 2;  // NVML_P2P_CAPS_INDEX_NVLINK
constexpr int status_ok = 0;          // NVML_P2P_STATUS_OK

struct Nvml {
  NvmlResult (*init)() = nullptr;
  NvmlResult (*device_by_uuid)(const char* uuid, NvmlDevice** device) = nullptr;
  NvmlResult (*p2p_status)(NvmlDevice* one, NvmlDevice* other, int capability,
                           int* status) = nullptr;
};

Status load(Nvml& functions) {
  // Never closed, as the driver is not.
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return environment_error("there is no libnvidia-ml.so.1");
  const char* missing = nullptr;
  UNISONO_LOAD_FUNCTION(init, "nvmlInit_v2", NvmlResult, ())
  UNISONO_LOAD_FUNCTION(device_by_uuid, "nvmlDeviceGetHandleByUUID", NvmlResult,
                        (const char*, NvmlDevice**))
  UNISONO_LOAD_FUNCTION(p2p_status, "nvmlDeviceGetP2PStatus", NvmlResult,
                        (NvmlDevice*, NvmlDevice*, int, int*))
  if (missing != nullptr) return environment_error("libnvidia-ml.so.1 lacks ", missing);
  if (const NvmlResult result = functions.init(); result != nvml_success)
    return environment_error("nvmlInit_v2 fails with ", result);
  return {};
}

}  // namespace

std::string text_of(const Uuid& uuid) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out = "GPU-";
  for (std::size_t i = 0; i < uuid.bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    out += digits[byte >> 4];
    out += digits[byte & 15];
  }
  return out;
}

std::optional<bool> nvlink_between(const Uuid& one, const Uuid& other) {
  const auto nvml = loaded_once<Nvml, load>();
  if (!nvml.ok()) return std::nullopt;
  NvmlDevice* first = nullptr;
  NvmlDevice* second = nullptr;
  int status = 0;
  if ((*nvml)->device_by_uuid(text_of(one).c_str(), &first) != nvml_success ||
      (*nvml)->device_by_uuid(text_of(other).c_str(), &second) != nvml_success ||
      (*nvml)->p2p_status(first, second, capability_nvlink, &status) != nvml_success)
    return std::nullopt;
  return status == status_ok;
}

}  // namespace unisono::sys::cuda
