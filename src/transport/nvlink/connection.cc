#include "transport/nvlink/connection.h"

#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/try.h"
#include "base/units.h"
#include "transport/clock.h"
#include "transport/request.h"

namespace unisono::transport::nvlink {
namespace {

using sys::cuda::DeviceAddress;

// For copy engines to end the puts of an end that is closed or given up.
constexpr std::int64_t puts_deadline_ns = 3 * ns_per_s;
constexpr std::chrono::microseconds puts_pause(20);

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
  constexpr std::size_t grain = DeviceLink::alignment;
  const std::size_t bytes = static_cast<std::size_t>(geometry.signals) * sizeof(std::uint64_t);
  return (bytes + grain - 1) / grain * grain;
}

class NvlinkConnection : public Connection {
 public:
  NvlinkConnection(const ConnectionRequest& request, std::unique_ptr<Connection> control,
                   Pool& pool, CloseHandshakes& close_handshakes, Introductions& introductions,
                   Pool::Stretch own, std::shared_ptr<const sys::cuda::Device> device)
      : Connection(request.self, request.peer),
        geometry_(request.geometry),
        control_(std::move(control)),
        pool_(pool),
        close_handshakes_(close_handshakes),
        introductions_(introductions),
        own_(std::move(own)),
        device_(std::move(device)) {
    // Signals first, then the region.
    device_link_ = {.region = own_.address() + signals_bytes(geometry_), .signals = own_.address()};
    introductions_.add(this, [this] {
      const std::lock_guard lock(meeting_mutex_);
      const auto told = introduce();
      return !told.ok() || *told;  // ready() tells of the error
    });
  }
  ~NvlinkConnection() override {
    introductions_.remove(this);
    end_puts();
    if (stream_ != nullptr) {
      const sys::cuda::Current current(*device_);
      device_->driver().stream_destroy(stream_);
    }
    // Unmapped before the peer is notified.
    peer_mapping_ = {};
    // A peer that was not told where this end's memory is has not mapped it.
    if (!introduced_) return;
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
  Status progress() override {
    const auto lock = until_ready();
    return control_->progress();
  }
  Status check_peer() override;
  // Puts that are under way read their sources until they have ended.
  void abort(Fault fault) override {
    control_->abort(fault);
    end_puts();
  }
  std::size_t memory_bytes() const override {
    return signals_bytes(geometry_) + geometry_.region_bytes + control_->memory_bytes();
  }

 private:
  Result<bool> introduce();
  // Until this end is ready, the control connection may be of use to another thread, too.
  std::unique_lock<std::mutex> until_ready() {
    return ready_ ? std::unique_lock<std::mutex>() : std::unique_lock(meeting_mutex_);
  }
  Status map_peer();
  void end_puts();
  sys::cuda::DriverResult query_puts() const;

  Geometry geometry_;
  std::unique_ptr<Connection> control_;
  Pool& pool_;
  CloseHandshakes& close_handshakes_;
  Introductions& introductions_;
  Pool::Stretch own_;
  std::shared_ptr<const sys::cuda::Device> device_;
  Pool::Mapping peer_mapping_;
  bool peer_is_in_this_process_ = false;
  std::mutex meeting_mutex_;
  bool introduced_ = false;
  bool ready_ = false;
  bool saw_peer_gone_ = false;
  // Puts by the copy engine: a stream keeps their order. None is begun after abort() has returned.
  std::mutex puts_mutex_;
  sys::cuda::StreamHandle* stream_ = nullptr;
  std::uint64_t started_ = 0;
  mutable std::uint64_t completed_ = 0;
};

Result<bool> NvlinkConnection::introduce() {
  if (introduced_) return true;
  UNISONO_ASSIGN(const bool met, control_->ready());
  if (!met) return false;
  const Introduction mine{
      .magic = introduction_magic, .geometry = geometry_, .region = own_.location()};
  UNISONO_ASSIGN(introduced_, control_->try_put(&mine, sizeof mine, 0, {0, introduced_value}));
  return introduced_;
}

Result<bool> NvlinkConnection::ready() {
  if (ready_) return true;
  const auto lock = until_ready();
  UNISONO_ASSIGN(const bool told, introduce());
  if (!told) return false;
  UNISONO_TRY(control_->progress());
  // Acquire: the introduction before its signal.
  if (control_->signals()[0].load(std::memory_order_acquire) == 0) return false;
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
  auto mapping = pool_.map(peer_, theirs.region, signals_bytes(geometry_) + geometry_.region_bytes);
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
  if (!ready_) return bug("put to rank ", peer_, " before the connection is ready");
  UNISONO_TRY(check_put(geometry_, peer_, bytes, peer_offset, signal));
  const std::lock_guard lock(puts_mutex_);
  UNISONO_TRY(control_->progress());
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
  if (completed_ != started_ && query_puts() == sys::cuda::driver_success) completed_ = started_;
  return completed_;
}

sys::cuda::DriverResult NvlinkConnection::query_puts() const {
  const sys::cuda::Current current(*device_);
  return device_->driver().stream_query(stream_);
}

void NvlinkConnection::end_puts() {
  const std::lock_guard lock(puts_mutex_);
  if (stream_ == nullptr) return;
  const std::int64_t until_ns = now_ns() + puts_deadline_ns;
  while (query_puts() == sys::cuda::driver_not_ready) {
    if (now_ns() > until_ns) {
      log(LogLevel::error, "rank ", self_, " put to rank ", peer_, " from CUDA device ",
          device_->ordinal(), ", which has not ended the copies after ",
          format_duration_ns(puts_deadline_ns), "; it may read their sources later");
      return;
    }
    std::this_thread::sleep_for(puts_pause);
  }
}

// The control connection stays until both ends are closed, so that it does not tell.
Status NvlinkConnection::check_peer() {
  const auto lock = until_ready();
  UNISONO_TRY(control_->check_peer());
  // Acquire: the peer's puts were over before it was sent.
  if (!ready_ || control_->signals()[0].load(std::memory_order_acquire) < closed_value) return {};
  if (!std::exchange(saw_peer_gone_, true)) return {};
  return peer_left(peer_);
}

}  // namespace

void Introductions::add(const Connection* connection, std::function<bool()> introduce) {
  const std::lock_guard lock(mutex_);
  waiting_[connection] = std::move(introduce);
}

void Introductions::remove(const Connection* connection) {
  const std::lock_guard lock(mutex_);
  waiting_.erase(connection);
}

void Introductions::advance() {
  const std::lock_guard lock(mutex_);
  std::erase_if(waiting_, [](const auto& one) { return one.second(); });
}

Result<std::unique_ptr<Connection>> make_connection(
    const ConnectionRequest& request, Transport& control, Pool& pool,
    CloseHandshakes& close_handshakes, Introductions& introductions,
    std::shared_ptr<const sys::cuda::Device> device) {
  UNISONO_TRY(check_request(request));
  ConnectionRequest control_request = request;
  control_request.geometry = control_geometry();
  UNISONO_ASSIGN(auto met, control.connect(control_request));
  UNISONO_ASSIGN(Pool::Stretch own,
                 pool.take(signals_bytes(request.geometry) + request.geometry.region_bytes));
  return std::unique_ptr<Connection>(
      std::make_unique<NvlinkConnection>(request, std::move(met), pool, close_handshakes,
                                         introductions, std::move(own), std::move(device)));
}

}  // namespace unisono::transport::nvlink
