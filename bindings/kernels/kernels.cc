// libunisono_kernels.so: the compiled kernels by themselves. A package holds them once, although
// several of its libraries hand them to a driver.
#include "device/embed.h"

UNISONO_EMBED(unisono_kernel_bytes, UNISONO_KERNEL_IMAGE);

extern "C" [[gnu::visibility("default")]] const void* unisono_kernel_image() {
  return unisono_kernel_bytes;
}
