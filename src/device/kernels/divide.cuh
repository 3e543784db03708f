// average's last step: elements that are all there become themselves over the number of ranks.
#pragma once

#include <cstdint>

#include "device/copy/local.cuh"
#include "device/kernels/address.cuh"
#include "device/program.h"
#include "device/ptx/grid.cuh"
#include "device/reduce/units.cuh"
#include "device/sync/stamp.cuh"

namespace unisono::device {

extern "C" __global__ void __launch_bounds__(threads_per_block)
    unisono_divide(const __grid_constant__ DivideLaunch launch) {
  ptx::wait_for_kernel_before();
  keep_stamp_count(launch.stamp, stamp_begin(launch.stamp));
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads_per_block;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads_per_block + threadIdx.x;
       i < launch.elements; i += stride)
    divide_element(launch.type, at_address<Byte>(launch.data) + i * launch.element_bytes,
                   launch.ranks);
  stamp_end_of_block(launch.stamp, true);
}

}  // namespace unisono::device
