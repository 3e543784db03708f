#include "base/error.h"
#include "base/try.h"
#include "transport/emulated/wire.h"
#include "transport/fault.h"
#include "transport/request.h"

namespace unisono::transport::emulated {
namespace {

class EmulatedConnection final : public Connection {
 public:
  EmulatedConnection(std::shared_ptr<Wire> wire, std::size_t which,
                     const ConnectionRequest& request)
      : Connection(request.self, request.peer),
        wire_(std::move(wire)),
        which_(which),
        ranks_(request.ranks),
        key_(request.key) {
    region_ = own().region->data();
    signals_ = own().signals.get();
  }
  ~EmulatedConnection() override {
    wire_->reach(which_, "transport.close");
    wire_->leave(which_);
  }

  Result<bool> ready() override {
    UNISONO_TRY(progress());
    if (!own().peer_joined) {
      if (own().peer_died) return died();
      if (own().is_refused) return past_epoch(peer_, key_);
      return false;
    }
    const Geometry& theirs = wire_->end(1 - which_).geometry;
    if (!(theirs == own().geometry)) return geometry_mismatch(peer_, theirs, own().geometry);
    if (!is_ready_) wire_->reach(which_, "transport.ready");
    is_ready_ = true;
    return true;
  }

  Result<bool> try_put(const void* source, std::size_t bytes, std::size_t peer_offset,
                       Signal signal) override {
    if (!is_ready_) return bug("put to rank ", peer_, " before the connection is ready");
    UNISONO_TRY(check_put(own().geometry, peer_, bytes, peer_offset, signal));
    wire_->reach(which_, bytes > 0 ? "transport.put" : "transport.signal");
    wire_->interrupt(which_);
    return wire_->try_put(which_, {static_cast<const std::byte*>(source), bytes}, 0, peer_offset,
                          signal);
  }

  Result<RemoteMemory> expose(void* memory, std::size_t bytes) override {
    UNISONO_TRY(progress());
    wire_->reach(which_, "transport.expose");
    UNISONO_TRY(check_host_memory("emulated", self_, peer_, memory, bytes));
    return own().exposed->add(memory, bytes);
  }
  void withdraw(const RemoteMemory& memory) override {
    wire_->reach(which_, "transport.withdraw");
    own().exposed->remove(memory.key);
  }
  bool puts_in_place() const override { return true; }
  Result<bool> try_put_to(const RemoteMemory& memory, std::size_t offset, const void* source,
                          std::size_t bytes, Signal signal) override {
    if (!is_ready_) return bug("put to rank ", peer_, " before the connection is ready");
    UNISONO_TRY(check_put_to(own().geometry, peer_, memory, signal));
    wire_->reach(which_, "transport.put_in_place");
    wire_->interrupt(which_);
    return wire_->try_put(which_, {static_cast<const std::byte*>(source), bytes}, memory.key,
                          offset, signal);
  }
  bool can_get() const override { return true; }
  Result<bool> try_get(const RemoteMemory& memory, std::size_t offset, void* destination,
                       std::size_t bytes) override {
    if (!is_ready_) return bug("get from rank ", peer_, " before the connection is ready");
    UNISONO_TRY(check_get(peer_, memory));
    wire_->reach(which_, "transport.get");
    wire_->interrupt(which_);
    return wire_->try_get(which_, {static_cast<std::byte*>(destination), bytes}, memory.key,
                          offset);
  }
  std::uint64_t gets_started() const override { return own().gets_started; }
  std::uint64_t gets_completed() const override { return own().gets_started - own().gets.size(); }
  std::uint64_t puts_started() const override { return own().started; }
  std::uint64_t puts_completed() const override { return own().completed; }

  bool can_read_peer() const override { return false; }
  Status read_peer(void*, std::uint64_t, std::size_t) override {
    return bug("the memory of rank ", peer_, " cannot be read over the emulated network");
  }

  Status progress() override {
    wire_->receive(which_);
    if (const std::uint64_t word = own().peer_fault; word != 0) {
      const auto fault = unpack_fault(word, ranks_);
      return fault ? told_error(peer_, *fault) : impossible_fault(peer_, word, ranks_);
    }
    if (fault_ != 0) return own_error(peer_, unpack(fault_));
    if (own().violation) return Error(*own().violation);
    return {};
  }

  Status check_peer() override {
    UNISONO_TRY(progress());
    if (!is_ready_) return {};
    const bool died = own().peer_died;
    if (!own().peer_left && !died) return {};
    if (!saw_peer_gone_) {
      saw_peer_gone_ = true;
      return {};
    }
    if (died) return this->died();
    return peer_left(peer_);
  }

  bool is_unanswered() override {
    return wire_->is_cut() && (!own().under_way.empty() || !own().gets.empty());
  }

  void abort(Fault fault) override {
    if (fault.kind == Fault::Kind::none) fault = {.kind = Fault::Kind::aborted, .rank = self_};
    if (fault_ != 0) return;
    wire_->reach(which_, "transport.abort");
    fault_ = pack(fault);
    own().exposed->clear();
    own().is_aborted = true;
    wire_->tell_fault(which_, fault_);
  }

  std::size_t memory_bytes() const override {
    return sizeof *this + sys::resident_bytes(region_, own().geometry.region_bytes);
  }

 private:
  Wire::End& own() { return wire_->end(which_); }
  const Wire::End& own() const { return wire_->end(which_); }
  Error died() const {
    return peer_error(peer_, "rank ", peer_, " failed: its connection has ended");
  }

  const std::shared_ptr<Wire> wire_;
  const std::size_t which_;
  const int ranks_;
  const ConnectionKey key_;
  std::uint64_t fault_ = 0;
  bool is_ready_ = false;
  bool saw_peer_gone_ = false;
};

}  // namespace

std::unique_ptr<Connection> make_connection(std::shared_ptr<Wire> wire, std::size_t which,
                                            const ConnectionRequest& request) {
  return std::make_unique<EmulatedConnection>(std::move(wire), which, request);
}

}  // namespace unisono::transport::emulated
