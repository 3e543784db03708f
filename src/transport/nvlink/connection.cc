#include "transport/nvlink/connection.h"

#include <cstring>

#include "base/error.h"
#include "base/try.h"
#include "transport/request.h"

namespace unisono::transport::nvlink {
namespace {

using sys::cuda::DeviceAddress;

constexpr std::uint64_t introduction_magic = 0x6b6e696c766e3275;  // "u2nvlink"

// What the ends tell each other over the control connection, whose geometry is made for it.
struct Introduction {
  std::uint64_t magic = 0;
  Geometry geometry;
  Location region;
};

// Behind the introduction, on a line of its own.
constexpr std::size_t host_offset = 1024;
static_assert(sizeof(Introduction) <= host_offset);

Geometry control_geometry() {
  return {.region_bytes = host_offset + DeviceLink::host_bytes,
          .signals = 1,
          .layout = introduction_magic};
}

std::size_t signals_bytes(const Geometry& geometry) {
  constexpr std::size_t grain = 256;
  const std::size_t bytes = static_cast<std::size_t>(geometry.signals) * sizeof(std::uint64_t);
  return (bytes + grain - 1) / grain * grain;
}

class NvlinkConnection : public Connection {
 public:
  NvlinkConnection(const ConnectionRequest& request, std::unique_ptr<Connection> control,
                   Pool& pool, CloseHandshakes& close_handshakes, Pool::Stretch own,
                   std::shared_ptr<const sys::cuda::Device> device)
      : Connection(request.self, request.peer),
        geometry_(request.geometry),
        control_(std::move(control)),
        pool_(pool),
        close_handshakes_(close_handshakes),
        own_(std::move(own)),
        device_(std::move(device)) {
    // Signals first, then the region.
    device_link_ = {.region = own_.address() + signals_bytes(geometry_), .signals = own_.address()};
  }
  ~NvlinkConnection() override {
    if (stream_ != nullptr) {
      const sys::cuda::Current current(*device_);
      device_->driver().stream_synchronize(stream_);
      device_->driver().stream_destroy(stream_);
    }
    // Unmapped before the peer is notified.
    peer_mapping_ = {};
    close_handshakes_.add(std::move(control_), std::move(own_), peer_is_in_this_process_);
    close_handshakes_.sweep();
  }
  NvlinkConnection(const NvlinkConnection&) = delete;
  NvlinkConnection& operator=(const NvlinkConnection&) = delete;

  Result<bool> ready() override;
  Result<bool> try_put(const void* source, std::size_t bytes, std::size_t peer_offset,
                       Signal signal) override;
  std::uint64_t puts_started() const override { return started_; }
  std::uint64_t puts_completed() const override;
  bool can_read_peer() const override { return false; }
  Status read_peer(void*, std::uint64_t, std::size_t) override {
    return bug("a connection between GPUs cannot read the memory of the peer's process");
  }
  Status progress() override { return control_->progress(); }
  Status check_peer() override { return control_->check_peer(); }
  void abort(Fault fault) override { control_->abort(fault); }
  std::size_t memory_bytes() const override {
    return signals_bytes(geometry_) + geometry_.region_bytes + control_->memory_bytes();
  }

 private:
  Result<bool> introduce();
  Status map_peer();

  Geometry geometry_;
  std::unique_ptr<Connection> control_;
  Pool& pool_;
  CloseHandshakes& close_handshakes_;
  Pool::Stretch own_;
  std::shared_ptr<const sys::cuda::Device> device_;
  Pool::Mapping peer_mapping_;
  bool peer_is_in_this_process_ = false;
  bool introduced_ = false;
  bool ready_ = false;
  // Puts by the copy engine: a stream keeps their order.
  sys::cuda::StreamHandle* stream_ = nullptr;
  std::uint64_t started_ = 0;
  mutable std::uint64_t completed_ = 0;
};

Result<bool> NvlinkConnection::introduce() {
  const Introduction mine{
      .magic = introduction_magic, .geometry = geometry_, .region = own_.location()};
  return control_->try_put(&mine, sizeof mine, 0, {0, introduced_value});
}

Result<bool> NvlinkConnection::ready() {
  if (ready_) return true;
  UNISONO_ASSIGN(const bool met, control_->ready());
  if (!met) return false;
  if (!introduced_) {
    UNISONO_ASSIGN(introduced_, introduce());
  }
  UNISONO_TRY(control_->progress());
  // Acquire: the introduction before its signal.
  if (!introduced_ || control_->signals()[0].load(std::memory_order_acquire) == 0) return false;
  UNISONO_TRY(map_peer());
  ready_ = true;
  return true;
}

Status NvlinkConnection::map_peer() {
  Introduction theirs;
  std::memcpy(&theirs, control_->region(), sizeof theirs);
  if (theirs.magic != introduction_magic)
    return peer_error(
        peer_, "rank ", peer_,
        " sent a description of its GPU that cannot be read; is it another version of unisono?");
  if (theirs.geometry != geometry_) return geometry_mismatch(peer_, theirs.geometry, geometry_);
  auto mapping = pool_.map(theirs.region, signals_bytes(geometry_) + geometry_.region_bytes);
  if (!mapping.ok()) {
    Error error(mapping.error());
    error.message =
        str("rank ", self_, " cannot reach the GPU of rank ", peer_, ": ", error.message);
    return error;
  }
  peer_mapping_ = *mapping;
  peer_is_in_this_process_ = theirs.region.process == sys::this_process();
  device_link_->peer_signals = peer_mapping_.address();
  device_link_->peer_region = peer_mapping_.address() + signals_bytes(geometry_);
  if (const HostLink* const control = control_->host_link()) {
    UNISONO_TRY(control_->reserve(host_offset, DeviceLink::host_bytes));
    UNISONO_TRY(control_->reserve_at_peer(host_offset, DeviceLink::host_bytes));
    device_link_->host = control_->region() + host_offset;
    device_link_->peer_host = control->region + host_offset;
  }
  return {};
}

Result<bool> NvlinkConnection::try_put(const void* source, std::size_t bytes,
                                       std::size_t peer_offset, Signal signal) {
  UNISONO_TRY(check_put(geometry_, peer_, bytes, peer_offset, signal));
  const sys::cuda::Current current(*device_);
  const sys::cuda::Driver& driver = device_->driver();
  constexpr unsigned non_blocking = 1;
  if (stream_ == nullptr)
    UNISONO_TRY(device_->check(driver.stream_create(&stream_, non_blocking), "making a stream"));
  if (bytes > 0)
    UNISONO_TRY(
        device_->check(driver.copy_async(device_link_->peer_region + peer_offset,
                                         reinterpret_cast<DeviceAddress>(source), bytes, stream_),
                       str("putting ", bytes, " bytes to rank ", peer_)));
  // After all the stream's copies, with a barrier of the memory before it.
  if (signal.index >= 0)
    UNISONO_TRY(device_->check(
        driver.stream_write(stream_,
                            device_link_->peer_signals +
                                static_cast<DeviceAddress>(signal.index) * sizeof(std::uint64_t),
                            signal.value, 0),
        str("signalling rank ", peer_)));
  ++started_;
  return true;
}

std::uint64_t NvlinkConnection::puts_completed() const {
  if (completed_ == started_) return completed_;
  const sys::cuda::Current current(*device_);
  if (device_->driver().stream_query(stream_) == sys::cuda::driver_success) completed_ = started_;
  return completed_;
}

}  // namespace

Result<std::unique_ptr<Connection>> make_connection(
    const ConnectionRequest& request, Transport& control, Pool& pool,
    CloseHandshakes& close_handshakes, std::shared_ptr<const sys::cuda::Device> device) {
  UNISONO_TRY(check_request(request));
  ConnectionRequest control_request = request;
  control_request.geometry = control_geometry();
  UNISONO_ASSIGN(auto met, control.connect(control_request));
  UNISONO_ASSIGN(Pool::Stretch own,
                 pool.take(signals_bytes(request.geometry) + request.geometry.region_bytes));
  return std::unique_ptr<Connection>(std::make_unique<NvlinkConnection>(
      request, std::move(met), pool, close_handshakes, std::move(own), std::move(device)));
}

}  // namespace unisono::transport::nvlink
