#include "transport/nvlink/transport.h"

#include "base/try.h"
#include "transport/nvlink/connection.h"
#include "transport/nvlink/pool.h"

namespace unisono::transport::nvlink {
namespace {

class NvlinkTransport : public Transport {
 public:
  NvlinkTransport(Transport& control, std::shared_ptr<const sys::cuda::Device> device)
      : control_(control), device_(device), pool_(std::move(device)) {}

  std::string_view name() const override { return "nvlink"; }
  std::string address() const override { return control_.address(); }
  Result<std::unique_ptr<Connection>> connect(const ConnectionRequest& request) override {
    return make_connection(request, control_, pool_, close_handshakes_, introductions_, device_);
  }
  Status progress() override {
    close_handshakes_.sweep();
    UNISONO_TRY(control_.progress());
    introductions_.advance();
    return {};
  }
  bool is_used_in_this_process() override { return close_handshakes_.wait_for_this_process(); }

 private:
  Transport& control_;
  std::shared_ptr<const sys::cuda::Device> device_;
  Pool pool_;
  CloseHandshakes close_handshakes_;
  Introductions introductions_;
};

}  // namespace

Result<std::unique_ptr<Transport>> make_transport(Transport& control,
                                                  std::shared_ptr<const sys::cuda::Device> device) {
  return std::unique_ptr<Transport>(std::make_unique<NvlinkTransport>(control, std::move(device)));
}

}  // namespace unisono::transport::nvlink
