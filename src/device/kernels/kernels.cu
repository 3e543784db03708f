// All kernels, as one module.
#include "device/kernels/divide.cuh"
#include "device/kernels/interpreter.cuh"
#include "device/kernels/messages.cuh"
#include "device/kernels/one_shot.cuh"
