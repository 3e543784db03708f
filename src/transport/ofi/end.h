// One end of a connection, as the hub and its Connection share it; under the hub's mutex.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sys/process.h"
#include "sys/shared_memory.h"
#include "transport/ofi/endpoint.h"
#include "transport/ofi/gets.h"
#include "transport/ofi/inbox.h"
#include "transport/ofi/landing.h"
#include "transport/ofi/message.h"
#include "transport/ofi/outbox.h"
#include "transport/ofi/ring.h"

namespace unisono::transport::ofi {

struct End {
  End(const ConnectionRequest& request, sys::PrivateMemory region, sys::PrivateMemory signals)
      : key(request.key),
        ranks(request.ranks),
        self(request.self),
        peer(request.peer),
        geometry(request.geometry),
        region_memory(std::move(region)),
        signals_memory(std::move(signals)),
        inbox(this->signals(), request.geometry.signals, request.peer),
        outbox(request.geometry.signals),
        landing(request.self, request.peer),
        gets(request.peer) {}
  ~End() { erase(proof_key); }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  std::atomic<std::uint64_t>* signals() const {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(signals_memory.data());
  }
  // Its region needs so many with the ring that lies behind it.
  static std::size_t memory_bytes(const Geometry& geometry) {
    return Ring::offset(geometry.region_bytes) + Ring::bytes;
  }
  bool is_joined() const { return peer_facts.has_value(); }
  // Nothing is put any more.
  bool is_over() const { return has_left || told_fault || fault != 0 || error.has_value(); }
  // Whether the peer is to be told what has arrived.
  bool owes_arrived() const {
    return inbox.in_order() - told_arrived >= Inbox::most_untold && !has_left;
  }
  // All that the peer sent before it left has arrived.
  bool is_gone() const { return has_left && has_arrived(); }
  bool has_arrived() const { return peer_total && inbox.in_order() >= *peer_total; }
  // Whether bytes for this exposed memory, or for any and for gets (0), may still come.
  bool is_due(std::uint64_t memory) const {
    const bool awaits_gets = memory == 0 && gets.are_due();
    return (awaits_gets || landing.is_due(memory, inbox.in_place())) && !has_arrived();
  }
  Meeting meeting(const Nonce& to_nonce) const {
    return {.key = key,
            .from = static_cast<std::uint32_t>(self),
            .to = static_cast<std::uint32_t>(peer),
            .from_nonce = nonce,
            .to_nonce = to_nonce};
  }

  const ConnectionKey key;
  const int ranks, self, peer;
  const Geometry geometry;
  sys::PrivateMemory region_memory;
  sys::PrivateMemory signals_memory;
  RegisteredMemory shared;  // of region_memory, which it must not outlive
  fi_addr_t to = FI_ADDR_UNSPEC;
  std::string peer_address;
  Key proof_key{};
  Nonce nonce{};
  std::uint32_t number = 0;
  std::uint64_t ticket = 0;

  std::optional<Facts> peer_facts;  // once it has proved the key
  sys::ProcessWatch peer_watch;
  bool is_watched = false;
  bool has_rings = false;  // by which both ends tell of writes; else completion data do
  bool has_told_memory = false;
  Inbox inbox;
  std::uint64_t told_arrived = 0;  // of what has arrived in the inbox
  Outbox outbox;
  Landing landing;
  Gets gets;
  struct Outgoing {
    std::vector<std::byte> bytes;
    std::uint64_t put = 0;  // whose value it is, or 0
  };
  std::deque<Outgoing> messages;  // that libfabric has not taken
  std::size_t messages_under_way = 0;
  std::optional<Announcement> owed;   // of the last write, which libfabric has not taken
  std::int64_t blocked_since_ns = 0;  // 0: libfabric takes what there is
  std::int64_t pinged_ns = 0;

  std::uint64_t fault = 0;          // ours, packed
  std::optional<Fault> told_fault;  // the peer's
  std::int64_t told_ns = 0;
  std::optional<Error> error;   // the peer did what it must not, or cannot be reached
  bool is_unreachable = false;  // of these, the latter
  bool has_left = false;        // the peer's end has
  // Of its writes and values, when it left or gave up.
  std::optional<std::uint64_t> peer_total;  // also once it has answered our bye
  bool owes_gone = false;                   // to answer the peer's bye
  bool is_leaving = false;                  // ours is about to
  bool is_closed = false;                   // ours has
  bool has_said_bye = false;
  bool may_be_forgotten = false;  // the peer has begun all that it will write here
};

}  // namespace unisono::transport::ofi
