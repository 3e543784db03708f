// The compiled kernels, as they are embedded in the library.
#pragma once

namespace unisono::device {

// A fat binary of src/device/kernels; nullptr where the library was built without nvcc.
const void* kernel_image();

}  // namespace unisono::device
