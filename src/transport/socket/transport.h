// Connections between hosts, over TCP.
#pragma once

#include <unisono/result.h>

#include <memory>
#include <string>

#include "transport/transport.h"

namespace unisono {
class Settings;
}

namespace unisono::transport::socket {

// Listens on a port of its own at `options.interface`: an address, or the name of an interface;
// empty for the loopback. Every stream proves the job's key, both ways, before anything else is
// read; what travels between hosts is protected as `options.protection` says.
Result<std::unique_ptr<Transport>> make_transport(const TransportOptions& options);

// How many streams a connection has, for a person.
Result<std::string> probe(const Settings& settings);

}  // namespace unisono::transport::socket
