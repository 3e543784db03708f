// The CUDA devices of this process.

#include "base/error.h"
#include "bind.h"
#include "convert.h"
#include "sys/cuda/device.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

int device_of_address(std::uintptr_t address) {
  const auto* driver = take(sys::cuda::driver());
  const auto kind = sys::cuda::kind_of(*driver, reinterpret_cast<const void*>(address));
  if (!kind.is_device) raise(misuse("address ", address, " is not memory of a CUDA device"));
  return kind.ordinal;
}

int cuda_device_count() {
  const auto* driver = take(sys::cuda::driver());
  int count = 0;
  check(sys::cuda::check(*driver, driver->device_count(&count), "counting CUDA devices"));
  return count;
}

}  // namespace

void bind_cuda(nb::module_& module) {
  module.def("device_of_address", &device_of_address, nb::arg("address"));
  module.def("cuda_device_count", &cuda_device_count);
}

}  // namespace unisono::python
