// One end of a connection over libfabric.
#pragma once

#include <unisono/result.h>

#include <memory>

#include "transport/ofi/hub.h"
#include "transport/transport.h"

namespace unisono::transport::ofi {

Result<std::unique_ptr<Connection>> make_connection(std::shared_ptr<Hub> hub,
                                                    const ConnectionRequest& request);

}  // namespace unisono::transport::ofi
