// One end of a shared-memory connection.
#pragma once

#include <unisono/result.h>

#include <memory>
#include <string>

#include "transport/transport.h"

namespace unisono::transport::shm {

Result<std::unique_ptr<Connection>> make_connection(const std::string& job,
                                                    const std::string& secret,
                                                    const ConnectionRequest& request);

}  // namespace unisono::transport::shm
