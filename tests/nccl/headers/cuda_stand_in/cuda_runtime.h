// The types of the CUDA runtime that NCCL's headers name, for compiling against them without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#define CUDART_VERSION 13000
#define __host__
#define __device__

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
