// Connections over libfabric: remote writes whose 32 bits of completion data carry the signals.
//
// Host memory, reliable datagram endpoints. libfabric's providers decide the wire: tcp;ofi_rxm
// where there is nothing better, shm inside a host. Nothing of libfabric is linked; it is loaded
// when a job names this transport.
#pragma once

#include <unisono/result.h>

#include <memory>
#include <string>
#include <string_view>

#include "transport/transport.h"

namespace unisono {
class Settings;
}

namespace unisono::transport::ofi {

// Whoever connects proves the job's key before it is told where memory is. Data are neither
// encrypted nor authenticated.
Result<std::unique_ptr<Transport>> make_transport(const TransportOptions& options);
// With one of libfabric's providers; the other one takes the first that fits, or FI_PROVIDER's.
Result<std::unique_ptr<Transport>> make_transport(const TransportOptions& options,
                                                  std::string_view provider);

// Which provider, for a person.
Result<std::string> probe(const Settings& settings);

}  // namespace unisono::transport::ofi
