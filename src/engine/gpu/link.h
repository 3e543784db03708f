// A connection as kernels see it.
#pragma once

#include <unisono/result.h>

#include "device/link.h"
#include "sys/cuda/device.h"
#include "transport/ring/link.h"
#include "transport/transport.h"

namespace unisono::engine::gpu {

device::Link link_of(const transport::Connection& connection, int channel);
device::Link link_of(const transport::ring::Link& link, int channel);

// Lays it down in device memory of the connection, for kernels that are given its address alone;
// once, when the connection is ready.
Status store_link(const sys::cuda::Device& device, const transport::Connection& connection,
                  int channel);
Status store_link(const sys::cuda::Device& device, const transport::ring::Link& link, int channel);
sys::cuda::DeviceAddress stored_link(const transport::Connection& connection);
sys::cuda::DeviceAddress stored_link(const transport::ring::Link& link);

}  // namespace unisono::engine::gpu
