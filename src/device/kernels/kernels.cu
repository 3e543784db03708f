// All kernels, as one module.
#include "device/kernels/divide.cuh"
#include "device/kernels/interpreter.cuh"
#include "device/kernels/ll128_all_pairs.cuh"
#include "device/kernels/ll_all_pairs.cuh"
#include "device/kernels/messages.cuh"
#include "device/kernels/tma_bulk.cuh"
