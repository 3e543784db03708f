#include "device/image.h"

#if defined(UNISONO_KERNEL_IMAGE)
// The file that nvcc made, as it is.
asm(".section .rodata.unisono_kernels, \"a\"\n"
    ".balign 64\n"
    ".hidden unisono_kernel_image\n"
    ".global unisono_kernel_image\n"
    "unisono_kernel_image:\n"
    ".incbin \"" UNISONO_KERNEL_IMAGE
    "\"\n"
    ".byte 0\n"
    ".previous\n");
extern "C" [[gnu::visibility("hidden")]] const unsigned char unisono_kernel_image[];
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
