#include "transport/ofi/transport.h"

#include "base/settings.h"
#include "base/str.h"
#include "base/try.h"
#include "transport/ofi/connection.h"
#include "transport/ofi/hub.h"
#include "transport/ofi/library.h"

namespace unisono::transport::ofi {
namespace {

class OfiTransport final : public Transport {
 public:
  explicit OfiTransport(std::shared_ptr<Hub> hub) : hub_(std::move(hub)) {}

  std::string_view name() const override { return "ofi"; }
  std::string address() const override { return hub_->address(); }
  int event_descriptor() const override { return hub_->descriptor(); }
  Status progress() override {
    const std::lock_guard lock(hub_->mutex());
    hub_->progress();
    return {};
  }
  Result<std::unique_ptr<Connection>> connect(const ConnectionRequest& request) override {
    return make_connection(hub_, request);
  }

 private:
  std::shared_ptr<Hub> hub_;
};

}  // namespace

Result<std::unique_ptr<Transport>> make_transport(const TransportOptions& options) {
  return make_transport(options, "");
}

Result<std::unique_ptr<Transport>> make_transport(const TransportOptions& options,
                                                  std::string_view provider) {
  UNISONO_ASSIGN(auto hub, Hub::make(options, provider));
  return std::unique_ptr<Transport>(std::make_unique<OfiTransport>(std::move(hub)));
}

Result<std::string> probe(const Settings&) {
  UNISONO_ASSIGN(const Library* loaded, library());
  UNISONO_ASSIGN(const auto endpoint, Endpoint::open("", ""));
  const std::uint32_t version = loaded->version();
  return str("libfabric ", FI_MAJOR(version), ".", FI_MINOR(version), ", provider ",
             endpoint->provider());
}

}  // namespace unisono::transport::ofi
