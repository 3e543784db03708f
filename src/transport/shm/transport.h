// Connections between ranks on one host, through shared memory.
#pragma once

#include <unisono/result.h>

#include <memory>
#include <string>

#include "transport/transport.h"

namespace unisono {
class Settings;
}

namespace unisono::transport::shm {

// Processes of one user that see the same /dev/shm. Threads as ranks may have a transport each or
// share one. Regions are mapped; large memory is read across processes where the kernel allows it.
Result<std::unique_ptr<Transport>> make_transport(const TransportOptions& options);

// How ranks of this host exchange messages, for a person.
Result<std::string> probe(const Settings& settings);

}  // namespace unisono::transport::shm
