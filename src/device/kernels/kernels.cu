// All kernels, as one module.
#include "device/kernels/bulk.cuh"
#include "device/kernels/direct.cuh"
#include "device/kernels/divide.cuh"
#include "device/kernels/interpreter.cuh"
#include "device/kernels/lines.cuh"
#include "device/kernels/messages.cuh"
