// One end of a connection between GPUs.
#pragma once

#include <memory>

#include "transport/nvlink/close_handshake.h"
#include "transport/nvlink/pool.h"
#include "transport/transport.h"

namespace unisono::transport::nvlink {

// Pool and close handshakes outlive the connection. It is destroyed only when no kernel that uses
// it runs here any more.
Result<std::unique_ptr<Connection>> make_connection(
    const ConnectionRequest& request, Transport& control, Pool& pool,
    CloseHandshakes& close_handshakes, std::shared_ptr<const sys::cuda::Device> device);

}  // namespace unisono::transport::nvlink
