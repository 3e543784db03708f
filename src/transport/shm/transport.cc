#include "transport/shm/transport.h"

#include <string>

#include "base/error.h"
#include "base/try.h"
#include "sys/cross_memory.h"
#include "sys/process.h"
#include "sys/tcp_socket.h"
#include "transport/shm/connection.h"
#include "transport/shm/segment.h"

namespace unisono::transport::shm {
namespace {

class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(const Key& key) : key_(key) {}
  ~ShmTransport() override { erase(key_); }

  std::string_view name() const override { return "shm"; }
  // The name of a segment follows from the keys; there is nothing to be told.
  std::string address() const override { return "shm"; }
  Status progress() override { return {}; }

  Result<std::unique_ptr<Connection>> connect(const ConnectionRequest& request) override {
    return make_connection(key_, request);
  }

 private:
  Key key_;
};

}  // namespace

Result<std::unique_ptr<Transport>> make_transport(const TransportOptions& options) {
  UNISONO_TRY(check_options(options));
  if (sys::this_process().start_time == 0)
    return environment_error(
        "this process cannot read when it was started (/proc/self/stat)",
        sys::out_of_descriptors() ? ": it can open no more files (ulimit -n)" : "");
  if (options.shares_memory) sys::allow_cross_memory_reads();
  remove_stale_segments();
  return std::unique_ptr<Transport>(std::make_unique<ShmTransport>(options.key));
}

}  // namespace unisono::transport::shm
