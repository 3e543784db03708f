#include "device/image.h"

#if defined(UNISONO_KERNEL_IMAGE)
#include "device/embed.h"
UNISONO_EMBED(unisono_kernel_image, UNISONO_KERNEL_IMAGE);
#elif defined(UNISONO_KERNELS_APART)
extern "C" const void* unisono_kernel_image();  // of libunisono_kernels.so
#endif

namespace unisono::device {

const void* kernel_image() {
#if defined(UNISONO_KERNEL_IMAGE)
  return unisono_kernel_image;
#elif defined(UNISONO_KERNELS_APART)
  return unisono_kernel_image();
#else
  return nullptr;
#endif
}

}  // namespace unisono::device
