// Connections between GPUs whose kernels load and store each other's memory, over NVLink (or PCIe).
//
// Region and signals lie in device memory: kernels use them, the host does not look at them. The
// ends meet, watch over each other and tell faults through a connection of another transport of the
// same host, the control transport, over which each tells the other where its memory is.
#pragma once

#include <unisono/result.h>

#include <memory>

#include "sys/cuda/device.h"
#include "transport/transport.h"

namespace unisono::transport::nvlink {

// `control` outlives the transport and everything made by it. Its address() is this one's.
Result<std::unique_ptr<Transport>> make_transport(Transport& control,
                                                  std::shared_ptr<const sys::cuda::Device> device);

}  // namespace unisono::transport::nvlink
