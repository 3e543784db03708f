// Connections between ranks on one host, through shared memory.
#pragma once

#include <unisono/result.h>

#include <memory>

#include "transport/transport.h"

namespace unisono::transport::shm {

// Processes of one user that see the same /dev/shm. Threads as ranks may have a transport each or
// share one. Regions are mapped; large memory is read across processes where the kernel allows it.
Result<std::unique_ptr<Transport>> make_transport(const TransportOptions& options);

}  // namespace unisono::transport::shm
