// What NVIDIA's management library (libnvidia-ml.so.1) knows of the links between GPUs, those
// included that this process does not see (CUDA_VISIBLE_DEVICES).
#pragma once

#include <optional>
#include <string>

#include "sys/cuda/driver.h"

namespace unisono::sys::cuda {

// Whether two GPUs of this machine are connected by NVLink. Nothing where the library is missing,
// as in containers without the driver's utilities, or does not know the devices. Any thread.
std::optional<bool> nvlink_between(const Uuid& one, const Uuid& other);

// As the library has it: "GPU-01020304-0506-0708-090a-0b0c0d0e0f10".
std::string text_of(const Uuid& uuid);

}  // namespace unisono::sys::cuda
