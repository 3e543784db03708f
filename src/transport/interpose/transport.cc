#include "transport/interpose/transport.h"

#include "base/try.h"
#include "transport/interpose/connection.h"

namespace unisono::transport::interpose {
namespace {

class InterposedTransport final : public Transport {
 public:
  InterposedTransport(std::unique_ptr<Transport> inner, const Options& options)
      : inner_(std::move(inner)), options_(options), puts_(std::make_shared<PutCount>(0)) {}

  std::string_view name() const override { return inner_->name(); }
  std::string address() const override { return inner_->address(); }
  int event_descriptor() const override { return inner_->event_descriptor(); }
  bool sleep(std::int64_t at_most_ns) override { return inner_->sleep(at_most_ns); }
  Status progress() override { return inner_->progress(); }

  Result<std::unique_ptr<Connection>> connect(const ConnectionRequest& request) override {
    UNISONO_ASSIGN(auto connection, inner_->connect(request));
    return make_connection(std::move(connection), request, options_, puts_);
  }

 private:
  std::unique_ptr<Transport> inner_;
  Options options_;
  std::shared_ptr<PutCount> puts_;
};

}  // namespace

std::unique_ptr<Transport> make_transport(std::unique_ptr<Transport> inner,
                                          const Options& options) {
  return std::make_unique<InterposedTransport>(std::move(inner), options);
}

}  // namespace unisono::transport::interpose
