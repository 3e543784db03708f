// Connections between hosts, over TCP.
#pragma once

#include <unisono/result.h>

#include <memory>

#include "transport/transport.h"

namespace unisono::transport::socket {

// Listens on a port of its own at `options.interface`: an address, or the name of an interface;
// empty for the loopback. Every stream proves the job's key, both ways, before anything else is
// read; what travels between hosts is protected as `options.protection` says.
Result<std::unique_ptr<Transport>> make_transport(const TransportOptions& options);

}  // namespace unisono::transport::socket
