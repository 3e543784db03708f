#include "transport/socket/transport.h"

#include <string>

#include "base/settings.h"
#include "base/str.h"
#include "base/try.h"
#include "transport/socket/connection.h"
#include "transport/socket/hub.h"

namespace unisono::transport::socket {
namespace {

class SocketTransport final : public Transport {
 public:
  explicit SocketTransport(std::shared_ptr<Hub> hub) : hub_(std::move(hub)) {}

  std::string_view name() const override { return "socket"; }
  std::string address() const override { return hub_->address(); }
  int event_descriptor() const override { return hub_->poller().descriptor(); }
  bool sleep(std::int64_t at_most_ns) override { return hub_->poller().wait(at_most_ns); }
  Status progress() override {
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
  UNISONO_ASSIGN(auto hub, Hub::make(options));
  return std::unique_ptr<Transport>(std::make_unique<SocketTransport>(std::move(hub)));
}

Result<std::string> probe(const Settings& settings) {
  const std::int64_t streams = settings.integer(Setting::socket_streams);
  return streams > 0
             ? str(streams, streams == 1 ? " TCP stream" : " TCP streams", " in each connection")
             : std::string("2 TCP streams in each connection inside a host, 1 between hosts");
}

}  // namespace unisono::transport::socket
