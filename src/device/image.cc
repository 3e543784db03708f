#include "device/image.h"

#include "device/embed.h"

#if defined(UNISONO_KERNEL_IMAGE)
UNISONO_EMBED(unisono_kernel_image, UNISONO_KERNEL_IMAGE);
#endif

namespace unisono::device {

const void* kernel_image() {
#if defined(UNISONO_KERNEL_IMAGE)
  return unisono_kernel_image;
#else
  return nullptr;
#endif
}

}  // namespace unisono::device
