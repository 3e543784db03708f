#include "transport/fifo.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/fingerprint.h"
#include "base/settings.h"
#include "base/try.h"
#include "transport/fifo_flagged.h"
#include "transport/fifo_layout.h"
#include "transport/fifo_put.h"
#include "transport/fifo_simple.h"

namespace unisono::transport {
namespace {

constexpr int max_slots = 1024;
constexpr std::size_t max_slot_bytes = std::size_t{1} << 30;

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

std::size_t slot_bytes(const FifoOptions& options, Protocol protocol) {
  switch (protocol) {
    case Protocol::simple:
      return options.simple_slot_bytes;
    case Protocol::ll:
      return options.ll_slot_bytes;
    case Protocol::ll128:
      return options.ll128_slot_bytes;
  }
  return 0;
}

// Room for the bytes of a slot behind a SlotHeader; LL uses three words of that for its size and
// its call, LL128 a word for its call.
std::size_t slot_stride(const FifoOptions& options, Protocol protocol) {
  return round_up(sizeof(SlotHeader) + slot_bytes(options, protocol), slot_alignment);
}

// A plan that is proved with so many slots never waits for a head that is held back.
std::size_t head_count(const FifoOptions& options) {
  return static_cast<std::size_t>(std::max(2 * options.slots, least_heads));
}

std::size_t heads_bytes(const FifoOptions& options, Protocol protocol) {
  return protocol == Protocol::simple ? head_count(options) * head_stride : 0;
}

// What is in a mapped region of one protocol, in this order: heads and slots.
std::size_t fifo_bytes(const FifoOptions& options, Protocol protocol) {
  return heads_bytes(options, protocol) +
         static_cast<std::size_t>(options.slots) * slot_stride(options, protocol);
}

// Of a slot that holds a message of any protocol.
std::size_t put_payload_bytes(const FifoOptions& options) {
  return std::max({slot_payload_bytes(options, Protocol::simple),
                   slot_payload_bytes(options, Protocol::ll),
                   slot_payload_bytes(options, Protocol::ll128)});
}

// FNV-1a over the numbers that decide where everything lies.
std::uint64_t fingerprint(const FifoOptions& options) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::uint64_t part :
       {static_cast<std::uint64_t>(options.slots), std::uint64_t{options.simple_slot_bytes},
        std::uint64_t{options.ll_slot_bytes}, std::uint64_t{options.ll128_slot_bytes},
        std::uint64_t{header_payload_bytes}, std::uint64_t{head_stride},
        std::uint64_t{sizeof(CallId)}, std::uint64_t{2 * sizeof(DestinationList)},
        std::uint64_t{least_direct_bytes(options)}, std::uint64_t{put_payload_bytes(options)}})
    for (int shift = 0; shift < 64; shift += 8) {
      hash ^= part >> shift & 0xff;
      hash *= 0x100000001b3;
    }
  return hash;
}

Status check_slot_bytes(std::string_view what, std::size_t bytes, std::size_t multiple,
                        std::size_t most) {
  if (bytes >= multiple && bytes <= most && bytes % multiple == 0) return {};
  return misuse(what, " is ", bytes, " bytes; it must be a multiple of ", multiple, " from ",
                multiple, " to ", most);
}

}  // namespace

FifoOptions FifoOptions::from_settings(const Settings& from) {
  return {.slots = static_cast<int>(from.integer(Setting::simple_slots)),
          .simple_slot_bytes = from.bytes(Setting::simple_slot_bytes),
          .ll_slot_bytes = from.bytes(Setting::ll_slot_bytes),
          .ll128_slot_bytes = from.bytes(Setting::ll128_slot_bytes),
          .zero_copy = from.boolean(Setting::zero_copy),
          .zero_copy_min_bytes = from.bytes(Setting::zero_copy_min_bytes)};
}

// A rank has a ring of slots for each other. At 15 others, rings of 4 MiB made an all-to-all of
// 256 KiB take 320 us, where rings of 512 KiB take 71. Where all rings together are still larger
// than a core's share of the caches, their first slots serve as long as the receiver keeps up: on
// 64 ranks an all-to-all of 2 MiB took 8.4 ms in rings of 8 slots, and 2 to 3 in rings of 2.
//
// A ring of twice the receiver's own cache has a message's lines leave that cache before they are
// written again; a larger one has the sender's leave its own. Messages of 2 MiB back and forth took
// 92 us in rings of twice that cache, 155 in rings of eight times, and 121 in a quarter of it.
FifoOptions FifoOptions::shared_by(int ranks, std::size_t cache_bytes) const {
  constexpr std::size_t most = std::size_t{512} << 10, least = std::size_t{64} << 10;
  constexpr std::size_t most_cached = std::size_t{4} << 20;
  FifoOptions out = *this;
  const auto others = static_cast<std::size_t>(std::max(ranks - 1, 1));
  if (out.simple_slot_bytes == 0) {
    out.simple_slot_bytes = std::max(std::bit_floor(most / others), least);
    if (ranks > 1)
      out.simple_slot_bytes =
          std::clamp(std::bit_floor(2 * cache_bytes / static_cast<std::size_t>(std::max(slots, 1))),
                     least, out.simple_slot_bytes);
  }
  const std::size_t ring = static_cast<std::size_t>(out.slots) * out.simple_slot_bytes;
  out.reuses_slots = ring * others > most_cached;
  out.shares_memory_bandwidth = ranks > 2;
  return out;
}

int FifoOptions::usable_slots() const {
  return static_cast<int>(transport::usable_slots(static_cast<std::uint64_t>(slots)));
}

Status FifoOptions::check() const {
  if (slots < 2 || slots > max_slots)
    return misuse("UNISONO_SLOTS is ", slots, "; it must be 2 to ", max_slots,
                  ": a rank that forwards a message holds its slot until the next connection has a "
                  "free one, so a ring with one slot deadlocks");
  if (auto status =
          check_slot_bytes("UNISONO_SIMPLE_SLOT_BYTES", simple_slot_bytes, 64, max_slot_bytes);
      !status.ok())
    return status;
  if (auto status = check_slot_bytes("UNISONO_LL_SLOT_BYTES", ll_slot_bytes, 64, max_slot_bytes);
      !status.ok())
    return status;
  return check_slot_bytes("UNISONO_LL128_SLOT_BYTES", ll128_slot_bytes, ll128_line_bytes,
                          max_ll128_payload / ll128_line_payload * ll128_line_bytes);
}

std::size_t slot_payload_bytes(const FifoOptions& options, Protocol protocol) {
  switch (protocol) {
    case Protocol::simple:
      return options.simple_slot_bytes;
    case Protocol::ll:
      return options.ll_slot_bytes / ll_word_bytes * ll_word_payload;
    case Protocol::ll128:
      return options.ll128_slot_bytes / ll128_line_bytes * ll128_line_payload;
  }
  return 0;
}

std::size_t least_direct_bytes(const FifoOptions& options) {
  return std::min(most_short_put_bytes + 1, std::max(options.zero_copy_min_bytes, std::size_t{1}));
}

Geometry fifo_geometry(const FifoOptions& options) {
  return {.region_bytes = fifo_bytes(options, Protocol::simple) +
                          fifo_bytes(options, Protocol::ll) + fifo_bytes(options, Protocol::ll128),
          .signals = in_place_signal + signals_per_line,
          .layout = fingerprint(options)};
}

FifoLayout fifo_layout(const FifoOptions& options, Protocol protocol) {
  std::size_t offset = 0;
  for (int before = 0; before < static_cast<int>(protocol); ++before)
    offset += fifo_bytes(options, static_cast<Protocol>(before));
  const int first_signal = 2 * static_cast<int>(protocol) * signals_per_line;
  return {.slots = static_cast<std::uint64_t>(options.slots),
          .heads = head_count(options),
          .payload_bytes = slot_payload_bytes(options, protocol),
          .slot_stride = slot_stride(options, protocol),
          .short_bytes = least_direct_bytes(options) - 1,
          .reuses_slots = options.reuses_slots,
          .shares_memory_bandwidth = options.shares_memory_bandwidth,
          .heads_offset = offset,
          .offset = offset + heads_bytes(options, protocol),
          .destinations_offset = 0,
          .arrived_signal = first_signal,
          .credit_signal = first_signal + signals_per_line,
          .slot_credit_signal = first_signal + signals_per_line + 1,
          .destinations_signal = first_signal + signals_per_line + 2};
}

// It fits where the heads and slots of all protocols do: a message is no longer than what the slot
// of its protocol holds, and the lists are shorter than the heads.
FifoLayout put_layout(const FifoOptions& options) {
  FifoLayout layout = fifo_layout(options, Protocol::simple);
  layout.heads = 0;
  layout.payload_bytes = put_payload_bytes(options);
  layout.slot_stride = round_up(sizeof(SlotHeader) + layout.payload_bytes, slot_alignment);
  layout.heads_offset = layout.offset = 0;
  layout.destinations_offset = static_cast<std::size_t>(layout.slots) * layout.slot_stride;
  return layout;
}

Error size_mismatch(const Connection& connection, std::uint64_t number, std::uint64_t sent,
                    std::uint64_t expected) {
  const int peer = connection.peer();
  return peer_failure(FailureReason::mismatch, peer, "message ", number, " from rank ", peer,
                      " has ", sent, " bytes, but rank ", connection.self(), " expects ", expected,
                      "; the ranks call different collectives, or with different arguments");
}

Error call_mismatch(const Connection& connection, const CallId& theirs, const CallId& ours) {
  return peer_failure(FailureReason::mismatch, -1, "ranks disagree on a call: rank ",
                      connection.self(), " calls ", describe_call(ours, theirs), "; rank ",
                      connection.peer(), " calls ", describe_call(theirs, ours));
}

trace::Traffic SendFifo::traffic() const {
  trace::Traffic out;
  counter_.add_to(out);
  flight_.add_to(out);
  return out;
}

trace::Traffic RecvFifo::traffic() const {
  trace::Traffic out;
  counter_.add_to(out);
  return out;
}

Status SendFifo::send_directly(std::span<const Piece>, std::span<const std::size_t>) {
  return bug("a message was sent directly over a connection that does not carry such messages");
}

Status RecvFifo::expose(void*, std::size_t, std::span<const std::int32_t>) {
  return bug("memory was exposed to messages of a connection that has none");
}

Protocol carrier(const Connection& connection, Protocol protocol) {
  return connection.host_link() == nullptr ? Protocol::simple : protocol;
}

std::unique_ptr<SendFifo> make_send_fifo(Connection& connection, Protocol protocol,
                                         const FifoOptions& options, sys::CallClock* clock) {
  const HostLink* const link = connection.host_link();
  if (link == nullptr) return std::make_unique<PutSendFifo>(connection, put_layout(options), clock);
  const FifoLayout layout = fifo_layout(options, protocol);
  switch (protocol) {
    case Protocol::simple:
      return std::make_unique<SimpleSendFifo>(connection, *link, layout, options, clock);
    case Protocol::ll:
      return std::make_unique<FlaggedSendFifo<LlCodec>>(connection, *link, layout, clock);
    case Protocol::ll128:
      return std::make_unique<FlaggedSendFifo<Ll128Codec>>(connection, *link, layout, clock);
  }
  return nullptr;
}

Result<std::unique_ptr<RecvFifo>> make_recv_fifo(Connection& connection, Protocol protocol,
                                                 const FifoOptions& options) {
  std::unique_ptr<RecvFifo> fifo;
  const HostLink* const link = connection.host_link();
  if (link == nullptr) {
    fifo = std::make_unique<PutRecvFifo>(connection, put_layout(options));
    return fifo;
  }
  const FifoLayout layout = fifo_layout(options, protocol);
  switch (protocol) {
    case Protocol::simple:
      UNISONO_TRY(connection.reserve(layout.heads_offset, head_stride));
      fifo = std::make_unique<SimpleRecvFifo>(connection, *link, layout);
      break;
    case Protocol::ll:
      UNISONO_TRY(connection.reserve(layout.offset, ll_word_bytes));
      fifo = std::make_unique<FlaggedRecvFifo<LlCodec>>(connection, layout);
      break;
    case Protocol::ll128:
      UNISONO_TRY(connection.reserve(layout.offset, ll128_line_bytes));
      fifo = std::make_unique<FlaggedRecvFifo<Ll128Codec>>(connection, layout);
      break;
  }
  return fifo;
}

}  // namespace unisono::transport
