#include "transport/shm/transport.h"

#include <string>

#include "base/error.h"
#include "base/settings.h"
#include "base/str.h"
#include "base/try.h"
#include "sys/cross_memory.h"
#include "sys/process.h"
#include "sys/shared_memory.h"
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

Result<std::string> probe(const Settings& settings) {
  const std::string name = str("/unisono-probe-", sys::this_process().pid);
  const auto memory = sys::SharedMemory::open(name, sys::page_bytes(), sys::page_bytes());
  sys::SharedMemory::unlink(name);
  if (!memory.ok()) return Error(memory.error());
  const char byte = 1;
  char copy = 0;
  const auto status = sys::read_process_memory(sys::this_process().pid, &copy,
                                               reinterpret_cast<std::uintptr_t>(&byte), 1);
  if (!status.ok())
    return "through slots; cross-memory attach does not work: " + status.error().message;
  if (!settings.is_set(Setting::zero_copy))
    return std::string("through slots; where it is measured to be faster, by cross-memory attach");
  if (settings.boolean(Setting::zero_copy))
    return std::string("large messages between processes by cross-memory attach, without slots");
  return std::string("through slots; cross-memory attach would work (UNISONO_ZERO_COPY)");
}

}  // namespace unisono::transport::shm
