// Compiled in place of the rest of this folder where libfabric's headers are missing.

#include "base/error.h"
#include "transport/ofi/transport.h"

namespace unisono::transport::ofi {
namespace {

Error absent() {
  return environment_error(
      "unisono was built without libfabric's headers; install libfabric-dev and build it again");
}

}  // namespace

Result<std::unique_ptr<Transport>> make_transport(const TransportOptions&) { return absent(); }

Result<std::unique_ptr<Transport>> make_transport(const TransportOptions&, std::string_view) {
  return absent();
}

Result<std::string> probe(const Settings&) { return absent(); }

}  // namespace unisono::transport::ofi
