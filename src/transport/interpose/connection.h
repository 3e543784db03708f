// One end of a connection with trouble in between.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "transport/interpose/transport.h"

namespace unisono::transport::interpose {

// Puts of all connections of a transport.
using PutCount = std::atomic<std::uint64_t>;

std::unique_ptr<Connection> make_connection(std::unique_ptr<Connection> inner,
                                            const ConnectionRequest& request,
                                            const Options& options, std::shared_ptr<PutCount> puts);

}  // namespace unisono::transport::interpose
