#include "transport/interpose/connection.h"

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

#include "base/error.h"
#include "base/try.h"
#include "transport/clock.h"
#include "transport/request.h"

namespace unisono::transport::interpose {
namespace {

class InterposedConnection final : public Connection {
 public:
  InterposedConnection(std::unique_ptr<Connection> inner, const ConnectionRequest& request,
                       const Options& options, std::shared_ptr<PutCount> puts)
      : Connection(request.self, request.peer),
        inner_(std::move(inner)),
        geometry_(request.geometry),
        options_(options),
        transport_puts_(std::move(puts)),
        random_(seed_of(options, request)) {
    region_ = inner_->region();
    // Its own signals come from the inner peer; this class is a reader of them.
    signals_ = const_cast<std::atomic<std::uint64_t>*>(inner_->signals());
  }

  Result<bool> ready() override {
    UNISONO_ASSIGN(ready_, inner_->ready());
    return ready_;
  }
  Result<bool> try_put(const void* source, std::size_t bytes, std::size_t peer_offset,
                       Signal signal) override;
  Result<RemoteMemory> expose(void* memory, std::size_t bytes) override {
    if (options_.regions_only) return RemoteMemory{};
    return inner_->expose(memory, bytes);
  }
  void withdraw(const RemoteMemory& memory) override { inner_->withdraw(memory); }
  bool puts_in_place() const override { return !options_.regions_only && inner_->puts_in_place(); }
  Result<bool> try_put_to(const RemoteMemory& memory, std::size_t offset, const void* source,
                          std::size_t bytes, Signal signal) override;
  // Gets go as they are.
  bool can_get() const override { return !options_.regions_only && inner_->can_get(); }
  Result<bool> try_get(const RemoteMemory& memory, std::size_t offset, void* destination,
                       std::size_t bytes) override {
    return inner_->try_get(memory, offset, destination, bytes);
  }
  std::uint64_t gets_started() const override { return inner_->gets_started(); }
  std::uint64_t gets_completed() const override { return inner_->gets_completed(); }
  std::uint64_t puts_started() const override { return started_; }
  std::uint64_t puts_completed() const override {
    return waiting_.empty() ? started_ : waiting_.front().number - 1;
  }
  bool can_read_peer() const override { return false; }
  Status read_peer(void*, std::uint64_t, std::size_t) override {
    return bug("the memory of rank ", peer_, " cannot be read through this connection");
  }
  Status progress() override {
    UNISONO_TRY(inner_->progress());
    return move();
  }
  Status progress_known() override {
    UNISONO_TRY(inner_->progress_known());
    return move();
  }
  std::int64_t next_due_ns() const override;
  Status check_peer() override {
    UNISONO_TRY(inner_->check_peer());
    return move();
  }
  void abort(Fault fault) override { inner_->abort(fault); }
  bool is_unanswered() override { return inner_->is_unanswered(); }
  std::size_t memory_bytes() const override {
    return inner_->memory_bytes() + sizeof *this + waiting_.size() * sizeof(Put);
  }

 private:
  struct Put {
    const void* source;
    std::size_t bytes;
    RemoteMemory memory;  // key 0: the peer's region
    std::size_t offset;
    Signal signal;
    std::uint64_t number = 0;
    std::int64_t due_ns = 0;
    bool bytes_gone = false;         // given to the inner connection,
    std::uint64_t inner_number = 0;  // as this one of its puts
  };
  static constexpr std::size_t max_waiting = 256;

  // Each connection and each end has trouble of its own.
  static std::uint64_t seed_of(const Options& options, const ConnectionRequest& request) {
    std::seed_seq parts{options.seed,
                        options.seed >> 32,
                        request.key.communicator,
                        std::uint64_t{request.key.epoch},
                        std::uint64_t{request.key.channel},
                        static_cast<std::uint64_t>(request.self),
                        static_cast<std::uint64_t>(request.peer)};
    std::uint32_t words[2];
    parts.generate(words, words + 2);
    return std::uint64_t{words[0]} << 32 | words[1];
  }

  bool add(Put put);
  Result<bool> give(const Put& put);
  std::int64_t due_time(std::size_t bytes);
  void forget_older_signal(int index);
  Status move();
  Result<bool> move_bytes(Put& put, std::int64_t now);
  Result<bool> move_signal(Put& put);
  Status lose(Put& put, std::int64_t now);

  std::unique_ptr<Connection> inner_;
  Geometry geometry_;
  Options options_;
  std::shared_ptr<PutCount> transport_puts_;
  std::mt19937_64 random_;
  bool ready_ = false;
  std::deque<Put> waiting_;
  std::vector<std::size_t> order_;
  std::uint64_t started_ = 0;
  std::int64_t link_free_ns_ = 0;
};

Result<bool> InterposedConnection::try_put(const void* source, std::size_t bytes,
                                           std::size_t peer_offset, Signal signal) {
  if (!ready_) return bug("put to rank ", peer_, " before the connection is ready");
  UNISONO_TRY(check_put(geometry_, peer_, bytes, peer_offset, signal));
  return add(
      {.source = source, .bytes = bytes, .memory = {}, .offset = peer_offset, .signal = signal});
}

Result<bool> InterposedConnection::try_put_to(const RemoteMemory& memory, std::size_t offset,
                                              const void* source, std::size_t bytes,
                                              Signal signal) {
  if (!ready_) return bug("put to rank ", peer_, " before the connection is ready");
  UNISONO_TRY(check_put_to(geometry_, peer_, memory, signal));
  return add(
      {.source = source, .bytes = bytes, .memory = memory, .offset = offset, .signal = signal});
}

bool InterposedConnection::add(Put put) {
  if (put.bytes > 0 && waiting_.size() >= max_waiting) return false;
  if (transport_puts_->fetch_add(1) + 1 == options_.die_at_put)
    inner_->abort({.kind = Fault::Kind::failed, .rank = self_});
  ++started_;
  if (put.bytes == 0 && put.signal.index < 0) return true;
  if (put.bytes == 0) forget_older_signal(put.signal.index);
  put.number = started_;
  put.due_ns = due_time(put.bytes);
  waiting_.push_back(put);
  // progress() reports what goes wrong on the way, as with any connection.
  (void)move();
  return true;
}

Result<bool> InterposedConnection::give(const Put& put) {
  if (put.memory.key == 0) return inner_->try_put(put.source, put.bytes, put.offset, {});
  return inner_->try_put_to(put.memory, put.offset, put.source, put.bytes, {});
}

std::int64_t InterposedConnection::due_time(std::size_t bytes) {
  const std::int64_t now = now_ns();
  std::int64_t due = now;
  if (options_.bytes_per_second > 0) {
    const double takes_ns =
        static_cast<double>(bytes) * 1e9 / static_cast<double>(options_.bytes_per_second);
    link_free_ns_ = std::max(link_free_ns_, now) + static_cast<std::int64_t>(takes_ns);
    due = link_free_ns_;
  }
  if (options_.max_delay_ns <= 0) return due;
  std::uniform_int_distribution<std::int64_t> delay(options_.min_delay_ns, options_.max_delay_ns);
  return due + delay(random_);
}

// Only the first put that has not gone: the others follow it, unless the order does not matter.
std::int64_t InterposedConnection::next_due_ns() const {
  std::int64_t due = inner_->next_due_ns();
  for (const Put& put : waiting_) {
    if (put.bytes_gone) continue;
    due = std::min(due, put.due_ns);
    if (!options_.reorder) break;
  }
  return due;
}

// Puts of no bytes are always taken, so at most two of a signal wait: the first, which must get
// through some time, and the latest.
void InterposedConnection::forget_older_signal(int index) {
  bool first = true;
  for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
    if (at->bytes != 0 || at->signal.index != index) continue;
    if (!first) {
      waiting_.erase(at);
      return;
    }
    first = false;
  }
}

// Bytes go when they are due, in random order if that is wanted; signals in order, each after the
// bytes of all puts before it, which the inner connection then keeps.
Status InterposedConnection::move() {
  if (waiting_.empty()) return {};
  const std::int64_t now = now_ns();
  order_.resize(waiting_.size());
  for (std::size_t i = 0; i < order_.size(); ++i) order_[i] = i;
  if (options_.reorder) std::shuffle(order_.begin(), order_.end(), random_);
  for (const std::size_t i : order_) {
    UNISONO_ASSIGN(const bool gone, move_bytes(waiting_[i], now));
    if (!gone && !options_.reorder) break;
  }
  for (Put& put : waiting_) {
    if (!put.bytes_gone) break;
    UNISONO_ASSIGN(const bool gone, move_signal(put));
    if (!gone) break;
  }
  while (!waiting_.empty() && waiting_.front().bytes_gone && waiting_.front().signal.index < 0 &&
         inner_->puts_completed() >= waiting_.front().inner_number)
    waiting_.pop_front();
  return {};
}

Result<bool> InterposedConnection::move_bytes(Put& put, std::int64_t now) {
  if (put.bytes_gone) return true;
  if (put.due_ns > now) return false;
  if (put.bytes > 0) {
    if (options_.loss > 0 && std::uniform_real_distribution<>(0, 1)(random_) < options_.loss) {
      UNISONO_TRY(lose(put, now));
      return false;
    }
    UNISONO_ASSIGN(const bool taken, give(put));
    if (!taken) return false;
    put.inner_number = inner_->puts_started();
  }
  put.bytes_gone = true;
  return true;
}

// Its signal then is none, which marks it as gone.
Result<bool> InterposedConnection::move_signal(Put& put) {
  if (put.signal.index < 0) return true;
  UNISONO_ASSIGN(const bool taken, inner_->try_put(nullptr, 0, 0, put.signal));
  if (!taken) return false;
  put.inner_number = inner_->puts_started();
  put.signal = {};
  return true;
}

Status InterposedConnection::lose(Put& put, std::int64_t now) {
  if (!options_.loss_is_fatal) {
    put.due_ns = now + options_.retransmit_ns;
    return {};
  }
  inner_->abort({.kind = Fault::Kind::timed_out, .rank = peer_});
  return inner_->progress();
}

}  // namespace

std::unique_ptr<Connection> make_connection(std::unique_ptr<Connection> inner,
                                            const ConnectionRequest& request,
                                            const Options& options,
                                            std::shared_ptr<PutCount> puts) {
  return std::make_unique<InterposedConnection>(std::move(inner), request, options,
                                                std::move(puts));
}

}  // namespace unisono::transport::interpose
