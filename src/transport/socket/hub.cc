#include "transport/socket/hub.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/try.h"
#include "sys/libcrypto.h"
#include "transport/clock.h"
#include "transport/request.h"
#include "transport/socket/late_closes.h"

namespace unisono::transport::socket {
namespace {

constexpr const char* default_interface = "127.0.0.1";
// Inside a host two streams keep two cores busy. Between hosts a link is what limits: streams that
// share one do not get equal parts of it, and each of a message's pieces waits for the slowest.
constexpr std::int64_t loopback_streams = 2;
constexpr std::int64_t host_streams = 1;
// When nobody here waits for a connection, those of others may wait as long.
constexpr std::int64_t idle_look_ns = 10 * ns_per_ms;
// How long a transport stays for its last bytes. A process that ends without exit handlers waits no
// longer.
constexpr std::int64_t last_close_ns = 2 * ns_per_s;
// For a peer that lives and does not receive: it may compute, or write a checkpoint.
constexpr std::int64_t patience_ns = 60 * ns_per_s;

}  // namespace

Result<std::shared_ptr<Hub>> Hub::make(const TransportOptions& options) {
  const std::int64_t streams = options.socket_streams;
  if (streams < 0 || streams > max_streams)
    return misuse("UNISONO_SOCKET_STREAMS is ", streams, "; it must be 1 to ", max_streams,
                  ", or 0 to choose");
  UNISONO_TRY(check_options(options));
  // What is missing is said now, and not when the first connection is made.
  if (options.protection != sys::Protection::none) UNISONO_TRY(sys::libcrypto());
  sys::raise_descriptor_limit();
  prepare_late_closes();
  UNISONO_ASSIGN(auto poller, Poller::make());
  const std::string& first = options.interface;
  UNISONO_ASSIGN(Rails rails,
                 listen_on_rails(first.empty() ? default_interface : first, options.rails));
  const std::int64_t wanted =
      streams > 0 ? streams : (rails.loopback ? loopback_streams : host_streams);
  // Every rail carries a stream.
  const auto count = std::max(wanted, static_cast<std::int64_t>(rails.listeners.size()));
  return std::make_shared<Hub>(std::move(poller), std::move(rails), options,
                               static_cast<int>(count));
}

Hub::Hub(std::unique_ptr<Poller> poller, Rails rails, const TransportOptions& options, int streams)
    : poller_(std::move(poller)),
      keys_(options.key),
      address_(std::move(rails.addresses)),
      rails_(rails.listeners.size()),
      acceptor_(std::move(rails.listeners), keys_, {options.protection, options.protects_loopback},
                *poller_, options.epochs),
      connector_(keys_, {options.protection, options.protects_loopback}, streams) {}

Hub::~Hub() {
  const std::int64_t deadline = now_ns() + last_close_ns;
  while (!close_handshake_.empty() && now_ns() < deadline) {
    close_handshake_.progress();
    if (!close_handshake_.empty()) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  if (!close_handshake_.empty()) close_late(close_handshake_);
}

bool Hub::under_way() const {
  return acceptor_.under_way() || !close_handshake_.empty() ||
         std::any_of(pending_.begin(), pending_.end(),
                     [](const auto& pending) { return pending->waits(); });
}

void Hub::progress() {
  if (!busy_.load(std::memory_order_relaxed) &&
      now_ns() - last_progress_ns_.load(std::memory_order_relaxed) < idle_look_ns)
    return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) progress_locked();
}

void Hub::progress_locked() {
  last_progress_ns_.store(now_ns(), std::memory_order_relaxed);
  poller_->poll();
  acceptor_.progress(pending_);
  connector_.progress();
  close_handshake_.progress();
  if (!close_handshake_.empty() && now_ns() > close_late_from_ns_) close_late(close_handshake_);
  busy_.store(under_way(), std::memory_order_relaxed);
}

Result<std::shared_ptr<PendingConnection>> Hub::open(const ConnectionRequest& request) {
  UNISONO_TRY(check_same_rails(address_, request.peer, request.peer_address));
  const std::lock_guard lock(mutex_);
  for (const auto& other : pending_)
    if (other->key == request.key && other->self == request.self && other->peer == request.peer)
      return misuse("rank ", request.self, " already has a connection to rank ", request.peer,
                    " on ", describe(request.key));
  auto pending = std::make_shared<PendingConnection>();
  pending->key = request.key;
  pending->ranks = request.ranks;
  pending->self = request.self;
  pending->peer = request.peer;
  pending->geometry = request.geometry;
  pending->peer_address = std::string(request.peer_address);
  pending_.push_back(pending);
  if (pending->connects()) connector_.begin(pending);
  busy_.store(true, std::memory_order_relaxed);
  return pending;
}

void Hub::want_back(const std::shared_ptr<PendingConnection>& pending, std::size_t stream,
                    std::uint32_t generation, std::size_t rail) {
  const std::lock_guard lock(mutex_);
  if (pending->returning.size() <= stream) pending->returning.resize(stream + 1);
  pending->returning[stream] = {
      .state = ReturningStream::State::wanted, .generation = generation, .stream = {}};
  if (pending->connects()) connector_.bring_back(pending, static_cast<int>(stream), rail);
}

void Hub::want_nothing(PendingConnection& pending) {
  const std::lock_guard lock(mutex_);
  pending.returning.clear();
}

ReturningStream Hub::take_back(PendingConnection& pending, std::size_t stream) {
  const std::lock_guard lock(mutex_);
  ReturningStream* const there = pending.returning_stream(static_cast<int>(stream));
  if (there == nullptr) return {};
  return {.state = there->state,
          .generation = there->generation,
          .stream = std::exchange(there->stream, {})};
}

void Hub::leave(const std::shared_ptr<PendingConnection>& pending) {
  const std::lock_guard lock(mutex_);
  std::erase(pending_, pending);
  pending->returning.clear();
  if (pending->waits())
    pending->fail(bug("the connection was destroyed before it was established"));
  // Lets go of half-made streams.
  progress_locked();
}

void Hub::see_off(Streams streams, CloseHandshake::Ends ends, bool has_failed) {
  const std::lock_guard lock(mutex_);
  if (close_handshake_.empty()) close_late_from_ns_ = now_ns() + last_close_ns;
  close_handshake_.add(std::move(streams), ends, has_failed ? last_close_ns : patience_ns);
  close_handshake_.progress();
  busy_.store(true, std::memory_order_relaxed);
}

}  // namespace unisono::transport::socket
