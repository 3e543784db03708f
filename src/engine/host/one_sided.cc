#include "engine/host/one_sided.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/try.h"
#include "engine/host/thread_block.h"

namespace unisono::engine {
namespace {

// Thread blocks of a rank ask for one part each, and put one.
constexpr std::size_t max_outgoing = std::size_t{1} << 13;
// `bytes` of the extents, from `offset` on.
void slice(const std::vector<Extent>& extents, std::size_t offset, std::size_t bytes,
           std::vector<Extent>& out) {
  out.clear();
  for (const Extent& extent : extents) {
    if (offset >= extent.bytes) {
      offset -= extent.bytes;
      continue;
    }
    const std::size_t part = std::min(extent.bytes - offset, bytes);
    if (part == 0) break;
    out.push_back({extent.data + offset, part});
    bytes -= part;
    offset = 0;
  }
}

// -1 for what is no buffer.
std::int64_t blocks_of(const plan::Header& header, const plan::RankProgram& program,
                       plan::Buffer buffer) {
  if (buffer == plan::Buffer::input) return plan::input_blocks_of(header, program.rank);
  if (buffer == plan::Buffer::output) return plan::output_blocks_of(header, program.rank);
  return buffer == plan::Buffer::scratch ? program.scratch_blocks : -1;
}

std::uint64_t address_of(const void* memory) { return reinterpret_cast<std::uint64_t>(memory); }

}  // namespace

OneSided::OneSided(std::span<const int> partners, const transport::FifoOptions& options)
    : partners_(partners.size()),
      payload_bytes_(transport::slot_payload_bytes(options, Protocol::simple)) {
  for (std::size_t i = 0; i < partners.size(); ++i) partners_[i].rank = partners[i];
}

OneSided::Partner& OneSided::find(int peer) {
  return *std::ranges::lower_bound(partners_, peer, {}, &Partner::rank);
}

void OneSided::start(CallState& call) {
  departing_ = false;
  const ScaleFactor factor = call.arithmetic.factor();
  entrance_ = {.input = address_of(call.memory.base(plan::Buffer::input)),
               .output = address_of(call.memory.base(plan::Buffer::output)),
               .scratch = address_of(call.memory.base(plan::Buffer::scratch)),
               .output_key = 0,
               .scratch_key = 0,
               .real = factor.real,
               .integer = factor.integer};
  for (Partner& partner : partners_) {
    partner.is_told = partner.is_leaving = partner.entered = false;
    partner.left = call.tiles == 0;
    partner.puts = {};
    partner.puts_arrived = 0;
  }
}

Status OneSided::enter(CallState& call, Partner& partner) {
  if (partner.is_told) return {};
  UNISONO_ASSIGN(partner.exposed_output, expose(call, partner, plan::Buffer::output));
  UNISONO_ASSIGN(partner.exposed_scratch, expose(call, partner, plan::Buffer::scratch));
  Outgoing outgoing;
  outgoing.notice.kind = Kind::enter;
  outgoing.notice.entrance = entrance_;
  outgoing.notice.entrance.output_key = partner.exposed_output.key;
  outgoing.notice.entrance.scratch_key = partner.exposed_scratch.key;
  queue(partner, std::move(outgoing));
  partner.is_told = true;
  return {};
}

void OneSided::leave(Partner& partner) {
  if (std::exchange(partner.is_leaving, true)) return;
  Outgoing outgoing;
  outgoing.notice.kind = Kind::leave;
  queue(partner, std::move(outgoing));
}

Result<transport::RemoteMemory> OneSided::expose(const CallState& call, Partner& partner,
                                                 plan::Buffer buffer) {
  const std::int64_t blocks = blocks_of(*call.header, *call.program, buffer);
  const std::size_t bytes = call.memory.uniform_bytes(blocks);
  if (bytes == 0) return transport::RemoteMemory{};
  return partner.connection->expose(call.memory.base(buffer), bytes);
}

Status OneSided::connect(CallState& call, Partner& partner) {
  Resources& resources = *call.resources;
  UNISONO_ASSIGN(partner.connection, resources.connection(partner.rank, one_sided_channel));
  if (partner.connection == nullptr) return {};
  UNISONO_ASSIGN(partner.recv,
                 resources.recv_fifo(partner.rank, one_sided_channel, Protocol::simple));
  UNISONO_ASSIGN(partner.send,
                 resources.send_fifo(partner.rank, one_sided_channel, Protocol::simple));
  return {};
}

std::uint64_t OneSided::queue(Partner& partner, Outgoing outgoing) {
  partner.outgoing.push_back(std::move(outgoing));
  return ++partner.queued;
}

Result<bool> OneSided::advance(CallState& call) {
  bool moved = false;
  for (Partner& partner : partners_) {
    if (call.tiles == 0) break;
    if (partner.send == nullptr) UNISONO_TRY(connect(call, partner));
    if (partner.send == nullptr) continue;
    UNISONO_TRY(enter(call, partner));
    if (departing_) leave(partner);
    partner.send->set_call(call.id);
    partner.recv->set_call(call.id);
    UNISONO_ASSIGN(const bool pushed, push(call, partner));
    UNISONO_ASSIGN(const bool pulled, pull(call, partner));
    partner.send->settle();
    // The last of what is outgoing may wait for its connection, which nothing else asks then.
    if (partner.send->has_pending()) UNISONO_TRY(partner.send->flush());
    moved |= pushed || pulled;
  }
  return moved;
}

Result<bool> OneSided::push(CallState& call, Partner& partner) {
  bool moved = false;
  while (!partner.outgoing.empty()) {
    const Outgoing& first = partner.outgoing.front();
    UNISONO_ASSIGN(const bool slot_free, partner.send->can_send());
    if (!slot_free) break;
    moved = true;
    if (!partner.notice_is_sent) {
      const transport::Piece piece{&first.notice, sizeof first.notice};
      UNISONO_TRY(partner.send->send(std::span(&piece, 1)));
      partner.notice_is_sent = true;
      partner.payload_done = 0;
    } else {
      slice(first.payload, partner.payload_done, payload_bytes_, there_);
      std::size_t bytes = 0;
      for (const Extent& extent : there_) bytes += extent.bytes;
      UNISONO_ASSIGN(void* const slot, partner.send->begin(bytes));
      call.arithmetic.gather(there_, static_cast<std::byte*>(slot), first.raw);
      UNISONO_TRY(partner.send->commit());
      partner.payload_done += bytes;
    }
    std::size_t total = 0;
    for (const Extent& extent : first.payload) total += extent.bytes;
    if (partner.payload_done < total) continue;
    partner.outgoing.pop_front();
    partner.notice_is_sent = false;
    partner.payload_done = 0;
    ++partner.sent;
  }
  return moved;
}

Result<bool> OneSided::pull(CallState& call, Partner& partner) {
  bool moved = false;
  while (partner.has_incoming || !partner.left || !partner.reads.empty()) {
    if (!partner.has_incoming) {
      UNISONO_ASSIGN(const bool arrived, partner.recv->arrived(sizeof(Notice)));
      if (!arrived) break;
      UNISONO_TRY(partner.recv->copy_to(&partner.incoming, 0, sizeof(Notice)));
      UNISONO_TRY(partner.recv->release());
      UNISONO_TRY(take(call, partner));
    } else {
      const std::size_t bytes =
          std::min(partner.incoming.part.bytes - partner.incoming_done, payload_bytes_);
      UNISONO_ASSIGN(const bool arrived, partner.recv->arrived(bytes));
      if (!arrived) break;
      UNISONO_TRY(take_payload(call, partner, bytes));
      UNISONO_TRY(partner.recv->release());
    }
    moved = true;
  }
  return moved;
}

Status OneSided::take(CallState& call, Partner& partner) {
  const Notice& notice = partner.incoming;
  const bool is_first = !partner.entered;
  if (is_first != (notice.kind == Kind::enter) || (partner.left && notice.kind != Kind::answer))
    return peer_error(partner.rank, "rank ", partner.rank, " sent notice ",
                      static_cast<unsigned>(notice.kind), " of one-sided steps ",
                      is_first       ? "before it began the call"
                      : partner.left ? "after it had finished"
                                     : "twice");
  if (notice.kind == Kind::leave) {
    partner.left = true;
    return {};
  }
  if (notice.kind != Kind::enter) return take_part(call, partner);
  const Entrance& entrance = notice.entrance;
  Arguments there;
  there.input = reinterpret_cast<const void*>(entrance.input);
  there.output = reinterpret_cast<void*>(entrance.output);
  partner.memory = call.memory;
  partner.memory.rebase(there, reinterpret_cast<void*>(entrance.scratch));
  partner.output = {.key = entrance.output_key, .address = entrance.output};
  partner.scratch = {.key = entrance.scratch_key, .address = entrance.scratch};
  partner.factor = {.real = entrance.real, .integer = entrance.integer};
  partner.entered = true;
  return {};
}

Status OneSided::take_part(CallState& call, Partner& partner) {
  const Notice& notice = partner.incoming;
  const RemotePart& part = notice.part;
  partner.incoming_done = 0;
  if (notice.kind == Kind::answer) {
    const auto read = std::ranges::find(partner.reads, notice.thread_block, &Read::thread_block);
    if (read == partner.reads.end() || read->bytes != part.bytes)
      return peer_error(partner.rank, "rank ", partner.rank, " answered with ", part.bytes,
                        " bytes, which thread block ", notice.thread_block, " did not request");
    partner.incoming_place = read->destination;
    partner.has_incoming = true;
    return {};
  }
  UNISONO_TRY(place(call, partner, part));
  if (notice.kind == Kind::put) {
    if (part.buffer == plan::Buffer::input)
      return peer_error(partner.rank, "rank ", partner.rank,
                        " puts into this rank's input, which must not be written");
    partner.incoming_place = there_;
    partner.has_incoming = true;
    return {};
  }
  if (notice.kind != Kind::ask || partner.outgoing.size() >= max_outgoing)
    return peer_error(partner.rank, "rank ", partner.rank, " sent ",
                      notice.kind == Kind::ask ? "more requests than it has thread blocks"
                                               : "a notice of one-sided steps of an unknown kind");
  Outgoing answer;
  answer.notice = notice;
  answer.notice.kind = Kind::answer;
  answer.payload = there_;
  answer.raw = part.buffer == plan::Buffer::input;
  queue(partner, std::move(answer));
  return {};
}

Status OneSided::place(const CallState& call, const Partner& partner, const RemotePart& part) {
  const plan::Header& header = *call.header;
  const std::int64_t chunks =
      blocks_of(header, *call.program, part.buffer) * header.chunks_per_block;
  const bool is_inside = part.count >= 1 && part.count <= header.max_step_count &&
                         part.chunk >= 0 && part.chunk <= chunks - part.count && part.tile >= 0 &&
                         part.tile < call.tiles;
  if (is_inside && part.bytes > 0 &&
      call.memory.extents(part.buffer, part.chunk, part.count, part.tile, there_) == part.bytes)
    return {};
  return peer_error(partner.rank, "rank ", partner.rank, " accesses chunks ", part.chunk, " to ",
                    part.chunk + part.count - 1, " of a buffer of ", chunks, ", ", part.bytes,
                    " bytes in tile ", part.tile, " of ", call.tiles,
                    "; ranks must run the same plan on blocks of one size");
}

Status OneSided::take_payload(CallState& call, Partner& partner, std::size_t bytes) {
  slice(partner.incoming_place, partner.incoming_done, bytes, there_);
  if (partner.incoming.kind == Kind::answer) {
    UNISONO_TRY(call.arithmetic.reduce_message(*partner.recv, there_, there_, false));
  } else {
    std::size_t offset = 0;
    for (const Extent& extent : there_) {
      UNISONO_TRY(partner.recv->copy_to(extent.data, offset, extent.bytes));
      offset += extent.bytes;
    }
  }
  partner.incoming_done += bytes;
  if (partner.incoming_done < partner.incoming.part.bytes) return {};
  partner.has_incoming = false;
  if (partner.incoming.kind == Kind::answer)
    std::erase_if(partner.reads, [&](const Read& read) {
      return read.thread_block == partner.incoming.thread_block;
    });
  else
    ++partner.puts_arrived;
  return {};
}

Result<bool> OneSided::depart(CallState& call) {
  departing_ = true;
  if (call.tiles == 0) return true;
  UNISONO_TRY(advance(call));
  for (Partner& partner : partners_) {
    if (!partner.is_leaving || !partner.left || !partner.outgoing.empty()) return false;
    UNISONO_ASSIGN(const bool sent, partner.send->flush());
    UNISONO_ASSIGN(const bool returned, partner.recv->flush());
    if (!sent || !returned) return false;
  }
  // All that the partners put here has arrived: their last notice came after it.
  for (Partner& partner : partners_) {
    partner.send->end_call();
    partner.connection->withdraw(std::exchange(partner.exposed_output, {}));
    partner.connection->withdraw(std::exchange(partner.exposed_scratch, {}));
  }
  return true;
}

std::vector<Waiting> OneSided::waits() const {
  std::vector<Waiting> out;
  for (const Partner& partner : partners_)
    if (departing_ && !partner.left)
      out.push_back(
          {.kind = Waiting::Kind::departure, .peer = partner.rank, .channel = one_sided_channel});
  return out;
}

}  // namespace unisono::engine
