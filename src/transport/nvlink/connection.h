// One end of a connection between GPUs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "transport/nvlink/close_handshake.h"
#include "transport/nvlink/pool.h"
#include "transport/transport.h"

namespace unisono::transport::nvlink {

// Connections whose peers are still to be told where this end's memory is, which needs no one to
// ask whether they are ready. Any thread.
class Introductions {
 public:
  // `introduce` is called by advance() until it returns true, or until remove() has returned.
  void add(const Connection* connection, std::function<bool()> introduce);
  void remove(const Connection* connection);
  void advance();

 private:
  std::mutex mutex_;
  std::map<const Connection*, std::function<bool()>> waiting_;
};

// Pool, close handshakes and introductions outlive the connection. It is destroyed only when no
// kernel that uses it runs here any more.
Result<std::unique_ptr<Connection>> make_connection(
    const ConnectionRequest& request, Transport& control, Pool& pool,
    CloseHandshakes& close_handshakes, Introductions& introductions,
    std::shared_ptr<const sys::cuda::Device> device);

}  // namespace unisono::transport::nvlink
