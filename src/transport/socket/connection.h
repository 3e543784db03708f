// One end of a connection over TCP streams.
#pragma once

#include <unisono/result.h>

#include <memory>

#include "transport/socket/hub.h"
#include "transport/transport.h"

namespace unisono::transport::socket {

Result<std::unique_ptr<Connection>> make_connection(std::shared_ptr<Hub> hub,
                                                    const ConnectionRequest& request);

}  // namespace unisono::transport::socket
