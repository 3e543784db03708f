// The kernels of src/device, compiled for the host, by their names.
#include "kernels.h"

#include "nvcc.h"
// Behind what nvcc brings.
#include "device/kernels/kernels.cu"

namespace unisono::device {
namespace {
thread_local __attribute__((aligned(128))) Byte bulk_stages[bulk_shared_bytes];
}  // namespace
}  // namespace unisono::device

namespace unisono::emulated {
namespace {

using namespace device;  // NOLINT(google-build-using-namespace): the kernels

// Of a kernel's one parameter.
template <class Parameters>
Parameters parameters_of(void (*)(Parameters));

template <auto kernel>
Operation start(unsigned blocks, unsigned threads, void** parameters) {
  using Parameters = decltype(parameters_of(kernel));
  return [=, given = *static_cast<const Parameters*>(parameters[0])]() -> Attempt {
    auto launched = std::make_shared<Kernel>(blocks, threads, [given] { kernel(given); });
    return [launched](Random& random) { return launched->step(random); };
  };
}

#define UNISONO_GENERAL(family, ...) {"unisono_" #family, &start<unisono_##family>},
#define UNISONO_SPECIALISED(family, data, ranks, ...) UNISONO_GENERAL(family##_##data##_##ranks)

}  // namespace

const std::map<std::string_view, Launcher>& kernels() {
  static const std::map<std::string_view, Launcher> all{
      UNISONO_KERNELS(UNISONO_GENERAL, UNISONO_SPECIALISED)};
  return all;
}

}  // namespace unisono::emulated
