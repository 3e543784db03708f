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
      UNISONO_KERNEL(few_messages, MessagesLaunch<few_transfers>),
      UNISONO_KERNEL(message_lines, MessageLinesLaunch),
      UNISONO_KERNELS_2_4_8(direct_take_any, DirectLaunch),
      UNISONO_KERNELS_2_4(direct_take_plain, DirectLaunch),
      UNISONO_KERNELS_2_4_8(direct_combine_any, DirectLaunch),
      UNISONO_KERNELS_2_4(direct_combine_float16, DirectLaunch),
      UNISONO_KERNELS_2_4(direct_combine_bfloat16, DirectLaunch),
      UNISONO_KERNELS_2_4(direct_combine_float32, DirectLaunch),
      UNISONO_KERNEL(direct_two_shot_any_4, DirectLaunch),
      UNISONO_KERNEL(direct_two_shot_any_8, DirectLaunch),
      UNISONO_KERNEL(direct_two_shot_float16_4, DirectLaunch),
      UNISONO_KERNEL(direct_two_shot_bfloat16_4, DirectLaunch),
      UNISONO_KERNEL(direct_two_shot_float32_4, DirectLaunch),
      UNISONO_KERNELS_2_4_8(lines_any, LinesLaunch),
      UNISONO_KERNELS_2_4(lines_float16, LinesLaunch),
      UNISONO_KERNELS_2_4(lines_bfloat16, LinesLaunch),
      UNISONO_KERNELS_2_4(lines_float32, LinesLaunch),
      UNISONO_KERNELS_2_4_8(straight_any, LinesLaunch),
      UNISONO_KERNELS_2_4_8(bulk_any, BulkLaunch),
      UNISONO_KERNEL(bulk_float16_2, BulkLaunch),
      UNISONO_KERNEL(bulk_bfloat16_2, BulkLaunch),
      UNISONO_KERNELS_2_4(bulk_float32, BulkLaunch),
  };
  return all;
}

}  // namespace unisono::emulated
