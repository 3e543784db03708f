// One end of a shared-memory connection.
#pragma once

#include <unisono/result.h>

#include <memory>

#include "transport/transport.h"

namespace unisono::transport::shm {

Result<std::unique_ptr<Connection>> make_connection(const Key& job_key,
                                                    const ConnectionRequest& request);

}  // namespace unisono::transport::shm
