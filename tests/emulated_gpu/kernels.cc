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

template <auto kernel, class Parameters>
Call call(void** parameters) {
  return [launch = *static_cast<const Parameters*>(parameters[0])] { kernel(launch); };
}

#define UNISONO_KERNEL(name, Parameters) {"unisono_" #name, &call<unisono_##name, Parameters>}
#define UNISONO_KERNELS_2_4(name, Parameters) \
  UNISONO_KERNEL(name##_2, Parameters), UNISONO_KERNEL(name##_4, Parameters)
#define UNISONO_KERNELS_2_4_8(name, Parameters) \
  UNISONO_KERNELS_2_4(name, Parameters), UNISONO_KERNEL(name##_8, Parameters)

}  // namespace

const std::map<std::string_view, Call (*)(void**)>& kernels() {
  static const std::map<std::string_view, Call (*)(void**)> all{
      UNISONO_KERNEL(interpret, Launch),
      UNISONO_KERNEL(interpret_tokens, Launch),
      UNISONO_KERNEL(divide, DivideLaunch),
      UNISONO_KERNEL(messages, MessagesLaunch<max_transfers>),
      UNISONO_KERNEL(messages_small, MessagesLaunch<small_launch_transfers>),
      UNISONO_KERNEL(ll128_messages, Ll128MessagesLaunch),
      UNISONO_KERNELS_2_4_8(ll_take_any, LlLaunch),
      UNISONO_KERNELS_2_4(ll_take_plain, LlLaunch),
      UNISONO_KERNELS_2_4_8(ll_combine_any, LlLaunch),
      UNISONO_KERNELS_2_4(ll_combine_float16, LlLaunch),
      UNISONO_KERNELS_2_4(ll_combine_bfloat16, LlLaunch),
      UNISONO_KERNELS_2_4(ll_combine_float32, LlLaunch),
      UNISONO_KERNEL(ll_two_shot_any_4, LlLaunch),
      UNISONO_KERNEL(ll_two_shot_any_8, LlLaunch),
      UNISONO_KERNEL(ll_two_shot_float16_4, LlLaunch),
      UNISONO_KERNEL(ll_two_shot_bfloat16_4, LlLaunch),
      UNISONO_KERNEL(ll_two_shot_float32_4, LlLaunch),
      UNISONO_KERNELS_2_4_8(ll128_any, Ll128Launch),
      UNISONO_KERNELS_2_4(ll128_float16, Ll128Launch),
      UNISONO_KERNELS_2_4(ll128_bfloat16, Ll128Launch),
      UNISONO_KERNELS_2_4(ll128_float32, Ll128Launch),
      UNISONO_KERNELS_2_4_8(zero_copy_any, Ll128Launch),
      UNISONO_KERNELS_2_4_8(bulk_any, BulkLaunch),
      UNISONO_KERNEL(bulk_float16_2, BulkLaunch),
      UNISONO_KERNEL(bulk_bfloat16_2, BulkLaunch),
      UNISONO_KERNELS_2_4(bulk_float32, BulkLaunch),
  };
  return all;
}

}  // namespace unisono::emulated
