#include "transport/ofi/hub.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/try.h"
#include "base/wire.h"
#include "sys/host.h"
#include "sys/real_socket.h"
#include "sys/tcp_socket.h"
#include "transport/clock.h"
#include "transport/fault.h"
#include "transport/ofi/library.h"
#include "transport/request.h"

namespace unisono::transport::ofi {
namespace {

constexpr std::string_view loopback = "127.0.0.1";
constexpr std::size_t receives = 64;
constexpr std::size_t completions_at_once = 32;
// What comes while completions are read must not keep the caller here.
constexpr int most_reads = 8;
// A descriptor is armed, which costs about as much as a look, once nothing has come for so long.
constexpr int empty_looks_before_arming = 8;
// How long a process may stay for its last writes when it ends, and for those to a peer that has
// left, which may listen no more.
constexpr std::int64_t last_close_ns = 2 * ns_per_s;
constexpr std::int64_t last_close_to_the_left_ns = 50 * ns_per_ms;
// How long the writes that may have failed are waited for, to find the one that has.
constexpr std::int64_t most_suspicion_ns = ns_per_s;

// The numeric address of this rank's interface, which may be given by name.
Result<std::string> numeric_host(const std::string& interface) {
  if (interface.empty()) return std::string(loopback);
  UNISONO_ASSIGN(const int descriptor, sys::open_listener({.host = interface, .port = 0}));
  const sys::Socket socket(descriptor);
  UNISONO_ASSIGN(const sys::Address bound, sys::local_address(descriptor));
  return bound.host;
}

}  // namespace

Result<std::shared_ptr<Hub>> Hub::make(const TransportOptions& options, std::string_view provider) {
  UNISONO_TRY(check_options(options));
  UNISONO_TRY(library());
  UNISONO_ASSIGN(const std::string host, numeric_host(options.interface));
  auto endpoint = Endpoint::open(host, provider);
  // Providers of other fabrics have addresses of their own.
  if (!endpoint.ok() && !host.empty()) {
    auto by_itself = Endpoint::open("", provider);
    if (by_itself.ok()) endpoint = std::move(by_itself);
  }
  if (!endpoint.ok()) return endpoint.take_error();
  std::shared_ptr<Hub> hub(new Hub(options.key, std::move(*endpoint)));
  UNISONO_TRY(hub->post_receives());
  return hub;
}

Hub::Hub(const Key& key, std::unique_ptr<Endpoint> endpoint)
    : key_(key), host_(sha256_word(sys::host_identity())), endpoint_(std::move(endpoint)) {}

Hub::~Hub() {
  const std::int64_t begin = now_ns();
  const auto is_busy = [&](const auto& entry) {
    const End& end = *entry.second;
    const std::int64_t patience = end.has_left ? last_close_to_the_left_ns : last_close_ns;
    return end.is_joined() && !end.error && now_ns() - begin < patience &&
           (!end.messages.empty() || end.messages_under_way > 0 || end.outbox.outstanding() > 0);
  };
  while (std::ranges::any_of(ends_, is_busy)) {
    progress();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  erase(key_);
  ends_.clear();
  for (const auto& block : operations_)
    for (Operation& operation : *block) operation.end.reset();
  // Before what it may still write to.
  endpoint_.reset();
}

std::string Hub::address() const { return str(endpoint_->provider(), " ", endpoint_->name()); }

Status Hub::post_receives() {
  UNISONO_TRY(add_operations());
  for (std::size_t i = 0; i < receives; ++i)
    UNISONO_TRY(post_receive(*take(Operation::Kind::receive, nullptr)));
  return {};
}

// One that the provider does not take now is tried again at each look.
Status Hub::post_receive(Operation& operation) {
  UNISONO_ASSIGN(const Posted posted,
                 endpoint_->receive(operation.bytes, operation.descriptor, &operation));
  if (posted == Posted::later) waiting_receives_.push_back(&operation);
  return {};
}

void Hub::post_waiting_receives() {
  for (Operation* operation : std::exchange(waiting_receives_, {})) (void)post_receive(*operation);
}

Result<fi_addr_t> Hub::resolve(std::string_view peer_address) {
  const auto known = addresses_.find(peer_address);
  if (known != addresses_.end()) return known->second;
  const std::string prefix = str(endpoint_->provider(), " ");
  if (!peer_address.starts_with(prefix))
    return environment_error("it is not one of libfabric's ", endpoint_->provider(),
                             ", which this rank uses; choose one provider on all ranks "
                             "(FI_PROVIDER)");
  UNISONO_ASSIGN(const fi_addr_t out, endpoint_->insert(peer_address.substr(prefix.size())));
  addresses_.emplace(peer_address, out);
  return out;
}

// Far from the last one: what is still under way to an end that has gone meets no other.
Result<std::uint32_t> Hub::free_number() const {
  for (std::uint32_t i = 1; i <= Immediate::most_number + 1; ++i) {
    const std::uint32_t number = (last_number_ + i) & Immediate::most_number;
    if (!ends_.contains(number)) return number;
  }
  return environment_error("the transport ofi has ", Immediate::most_number + 1,
                           " connections, which is all that it can have");
}

Result<std::shared_ptr<End>> Hub::open(const ConnectionRequest& request) {
  UNISONO_TRY(check_request(request));
  for (const auto& [number, other] : ends_)
    if (!other->is_closed && other->key == request.key && other->self == request.self &&
        other->peer == request.peer)
      return misuse("rank ", request.self, " already has a connection to rank ", request.peer,
                    " on ", describe(request.key));
  const std::size_t memory_bytes = End::memory_bytes(request.geometry);
  UNISONO_ASSIGN(auto region, sys::PrivateMemory::allocate(memory_bytes));
  UNISONO_ASSIGN(auto signals,
                 sys::PrivateMemory::allocate(static_cast<std::size_t>(request.geometry.signals) *
                                              sizeof(std::uint64_t)));
  auto end = std::make_shared<End>(request, std::move(region), std::move(signals));
  UNISONO_ASSIGN(end->number, free_number());
  auto to = resolve(request.peer_address);
  if (!to.ok()) {
    Error error = *to.take_error();
    error.message = str("rank ", request.self, " cannot use the address of rank ", request.peer,
                        ": ", error.message);
    return error;
  }
  end->to = *to;
  UNISONO_ASSIGN(const Key random, fresh_key());
  std::memcpy(end->nonce.data(), random.data(), sizeof end->nonce);
  std::memcpy(&end->ticket, random.data() + sizeof end->nonce, sizeof end->ticket);
  UNISONO_ASSIGN(end->shared, endpoint_->share(end->region_memory.data(), memory_bytes));
  const auto [low, high] = std::minmax(request.self, request.peer);
  end->proof_key = derive_connection_key(key_, "unisono ofi connection", request.key, low, high);
  last_number_ = end->number;
  ends_.emplace(end->number, end);
  send(*end, {.type = MessageType::ask, .meeting = end->meeting({}), .facts = {}, .note = {}});
  push(*end);
  return end;
}

void Hub::close(const std::shared_ptr<End>& end) {
  end->is_closed = true;
  end->outbox.drop();
  ++closed_;
  progress();
}

// Whether nothing of it is needed any more.
bool Hub::is_finished(End& end) {
  if (end.is_unreachable || !end.has_told_memory) return true;
  if (!end.is_joined()) return end.error.has_value();
  if (end.outbox.outstanding() > 0) return false;
  if (!end.has_said_bye) {
    end.has_said_bye = true;
    tell(end, MessageType::bye, {.sequence = end.outbox.sequence()});
  }
  push(end);
  // Writes that the peer has begun may arrive after its message.
  const bool has_all = end.has_arrived() || !end.inbox.is_whole();
  return end.may_be_forgotten && has_all && end.messages.empty() && !end.owed;
}

void Hub::sweep_closed() {
  if (closed_ == 0) return;
  closed_ -= std::erase_if(ends_, [&](const auto& entry) {
    return entry.second->is_closed && is_finished(*entry.second);
  });
}

void Hub::progress() {
  ++looks_;
  read_completions();
  if (!waiting_receives_.empty()) post_waiting_receives();
  for (const auto& [number, end] : ends_) {
    if (end->has_rings) read_ring(*end);
    push(*end);
  }
  if (suspicion_) find_suspect();
  sweep_closed();
}

void Hub::read_completions() {
  std::array<fi_cq_data_entry, completions_at_once> entries;
  bool is_empty = true;
  for (int reads = 0; reads < most_reads; ++reads) {
    const long count = endpoint_->read(entries);
    if (count == -FI_EAVAIL) {
      read_error();
      continue;
    }
    if (count <= 0) break;
    is_empty = false;
    for (long i = 0; i < count; ++i) {
      const fi_cq_data_entry& entry = entries[static_cast<std::size_t>(i)];
      // No peer sends a message that brings an immediate, but whoever knows the address can.
      const bool is_write = (entry.flags & FI_REMOTE_CQ_DATA) != 0 && (entry.flags & FI_RECV) == 0;
      if (is_write) {
        // One that has no end here was on its way when that went.
        const auto word = static_cast<std::uint32_t>(entry.data);
        if (const auto end = find(Immediate::unpack(word).number)) arrive(*end, word);
      } else if (entry.op_context != nullptr) {
        auto& operation = *static_cast<Operation*>(entry.op_context);
        if (operation.kind == Operation::Kind::receive) operation.count = entry.len;
        complete(operation);
      }
    }
    if (static_cast<std::size_t>(count) < entries.size()) break;
  }
  empty_looks_ = is_empty ? empty_looks_ + 1 : 0;
  if (empty_looks_ >= empty_looks_before_arming && endpoint_->arm()) empty_looks_ = 0;
}

void Hub::read_error() {
  const fi_cq_err_entry entry = endpoint_->read_error();
  auto* operation = static_cast<Operation*>(entry.op_context);
  if (operation == nullptr) {
    if (!fail_landing(entry.err)) suspect(entry.err);
    return;
  }
  if (operation->kind == Operation::Kind::receive) {
    // A message that is too long, or cut off: nobody of this job sent it.
    operation->count = 0;
  } else if (operation->end) {
    End& end = *operation->end;
    lose(end, peer_error(end.peer, "rank ", end.peer, " failed: libfabric cannot reach it: ",
                         (*library())->strerror(entry.err)));
  }
  complete(*operation);
}

// Bytes of a peer could not be stored, and libfabric does not say whose; it may be any that are
// due. Of those that a get brings, the provider of shared memory reads the owner's memory here.
// Whether any were due.
bool Hub::fail_landing(int code) {
  const char* why = (*library())->strerror(code);
  bool is_due = false;
  for (const auto& [number, end] : ends_) {
    if (!end->is_due(0) || end->error) continue;
    is_due = true;
    if (end->gets.are_due())
      refuse(*end, peer_error(end->peer, "libfabric cannot bring what rank ", end->self,
                              " gets from rank ", end->peer, ": ", why,
                              "; one of the two has unmapped memory of a get that is under way"));
    else
      refuse(*end,
             misuse("libfabric cannot store what rank ", end->peer, " puts into memory that rank ",
                    end->self, " exposes: ", why, "; withdraw memory before it is freed"));
  }
  return is_due;
}

// ofi_rxm, for one, does not say which write has failed. It never completes, and the others do.
void Hub::suspect(int code) {
  if (suspicion_)
    suspicion_->last = last_post_;
  else
    suspicion_ = {.code = code, .last = last_post_, .since_ns = now_ns()};
}

void Hub::find_suspect() {
  std::set<std::shared_ptr<End>> suspects;
  for (const auto& block : operations_)
    for (const Operation& operation : *block) {
      const bool is_write = operation.kind == Operation::Kind::write ||
                            operation.kind == Operation::Kind::announcement;
      if (is_write && operation.end && !operation.end->is_unreachable &&
          operation.number <= suspicion_->last)
        suspects.insert(operation.end);
    }
  if (suspects.size() > 1 && now_ns() - suspicion_->since_ns < most_suspicion_ns) return;
  for (const auto& end : suspects)
    lose(*end, peer_error(end->peer, "rank ", end->peer,
                          " failed: libfabric cannot write to it, or says so of another rank: ",
                          (*library())->strerror(suspicion_->code)));
  suspicion_.reset();
}

void Hub::complete(Operation& operation) {
  switch (operation.kind) {
    case Operation::Kind::receive:
      on_message(std::span(operation.bytes).first(std::min(operation.count, most_message_bytes)));
      // One that is refused is one fewer; there are many.
      (void)post_receive(operation);
      return;
    case Operation::Kind::send:
      --operation.end->messages_under_way;
      [[fallthrough]];
    case Operation::Kind::announcement:
      operation.end->outbox.completed_announcement(operation.put);
      break;
    case Operation::Kind::write:
      operation.end->outbox.completed_write(operation.put, operation.count);
      break;
  }
  give_back(operation);
}

Status Hub::add_operations() {
  operations_.push_back(std::make_unique<Block>());
  Block& block = *operations_.back();
  for (Operation& operation : block) free_.push_back(&operation);
  UNISONO_ASSIGN(void* const descriptor,
                 endpoint_->keep(reinterpret_cast<std::byte*>(&block), sizeof block));
  for (Operation& operation : block) operation.descriptor = descriptor;
  return {};
}

Hub::Operation* Hub::take(Operation::Kind kind, const std::shared_ptr<End>& end) {
  if (free_.empty()) {
    // libfabric refuses what is sent from them, then.
    if (const Status status = add_operations(); !status.ok())
      log(LogLevel::error, status.error().message);
  }
  Operation* out = free_.back();
  free_.pop_back();
  out->kind = kind;
  out->end = end;
  out->put = 0;
  return out;
}

void Hub::give_back(Operation& operation) {
  operation.end.reset();
  free_.push_back(&operation);
}

std::shared_ptr<End> Hub::find(std::uint32_t number) const {
  const auto found = ends_.find(number);
  return found == ends_.end() ? nullptr : found->second;
}

void Hub::push(End& end) {
  if (end.is_unreachable) return;
  push_messages(end);
  if (end.is_joined()) push_writes(end);
  const bool waits = !end.messages.empty();
  if (!waits)
    end.blocked_since_ns = 0;
  else if (end.blocked_since_ns == 0)
    end.blocked_since_ns = now_ns();
}

void Hub::fail(End& end, Error error) {
  if (end.error) return;
  end.error = std::move(error);
  end.outbox.drop();
}

// libfabric does not reach the peer.
void Hub::lose(End& end, Error error) {
  end.is_unreachable = true;
  end.messages.clear();
  fail(end, std::move(error));
}

void Hub::refuse(End& end, Error error) {
  const bool is_peers = error.kind == ErrorKind::peer;
  end.outbox.drop();
  tell(end, MessageType::fault,
       {.sequence = end.outbox.sequence(),
        .value = pack({.kind = is_peers ? Fault::Kind::protocol_violation : Fault::Kind::failed,
                       .rank = is_peers ? end.peer : end.self})});
  push_messages(end);
  fail(end, std::move(error));
}

}  // namespace unisono::transport::ofi
