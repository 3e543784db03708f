// Puts and reads of thread blocks: where the transport reaches the peer's memory, and elsewhere.
#include <algorithm>

#include "base/try.h"
#include "engine/host/one_sided.h"
#include "engine/host/thread_block.h"

namespace unisono::engine {
namespace {

// What is read goes through a buffer that the first-level cache holds, in pieces so large that a
// system call for each costs little.
constexpr std::size_t bounce_bytes = std::size_t{64} << 10;

}  // namespace

Result<bool> OneSided::put(CallState& call, int peer, const RemotePart& target,
                           const std::vector<Extent>& source, bool raw, RemoteStep& step) {
  Partner& partner = find(peer);
  const bool is_exposed =
      target.buffer != plan::Buffer::input && exposed_at(partner, target.buffer).key != 0;
  if (is_exposed && partner.connection->puts_in_place() && !(raw && call.arithmetic.scales_input()))
    return put_in_place(partner, target, source, step);
  if (!step.is_asked) {
    Outgoing outgoing{.notice = {}, .payload = source, .raw = raw};
    outgoing.notice.kind = Kind::put;
    outgoing.notice.part = target;
    step = {.is_asked = true, .ticket = queue(partner, std::move(outgoing))};
    ++partner.puts.staged;
    UNISONO_TRY(push(call, partner));
  }
  return partner.sent >= step.ticket;
}

// The last part carries a signal that counts with the connection's puts, so that it grows from call
// to call and from plan to plan.
Result<bool> OneSided::put_in_place(Partner& partner, const RemotePart& target,
                                    const std::vector<Extent>& source, RemoteStep& step) {
  transport::Connection& connection = *partner.connection;
  transport::FlightMeter& flight = partner.send->flight();
  if (!step.is_asked) {
    const std::byte* const base = partner.memory.base(target.buffer);
    partner.memory.extents(target.buffer, target.chunk, target.count, target.tile, there_);
    Result<bool> taken = true;
    zip(source, there_, [&](std::byte* from, std::byte* to, std::size_t bytes, std::size_t at) {
      if (!taken.ok() || !*taken || at < step.bytes_put) return;
      const bool is_last = at + bytes == target.bytes;
      const transport::Signal signal{is_last ? transport::in_place_signal : -1,
                                     connection.puts_started() + 1};
      taken = connection.try_put_to(exposed_at(partner, target.buffer),
                                    static_cast<std::size_t>(to - base), from, bytes, signal);
      if (!taken.ok() || !*taken) return;
      step.bytes_put = at + bytes;
      if (is_last) partner.puts.in_place = signal.value;
    });
    if (!taken.ok() || !*taken) return taken;
    step.is_asked = true;
    step.ticket = connection.puts_started();
    partner.send->counter().count(target.bytes);
    const bool may_be_timed =
        connection.host_link() == nullptr || target.bytes >= transport::least_timed_bytes;
    step.is_timed = may_be_timed && flight.begins_timed();
    if (step.is_timed) flight.begin(target.bytes);
  }
  if (connection.puts_completed() < step.ticket) return false;
  if (step.is_timed) flight.end(target.bytes);
  return true;
}

Result<bool> OneSided::read_reduce(CallState& call, int peer, const RemotePart& source,
                                   int thread_block, const std::vector<Extent>& destination,
                                   RemoteStep& step) {
  Partner& partner = find(peer);
  if (partner.connection->can_read_peer()) {
    UNISONO_TRY(read_directly(call, partner, source, destination));
    return true;
  }
  if (!step.is_asked) {
    Outgoing outgoing;
    outgoing.notice.kind = Kind::ask;
    outgoing.notice.thread_block = thread_block;
    outgoing.notice.part = source;
    partner.reads.push_back({thread_block, source.bytes, destination});
    step = {.is_asked = true, .ticket = queue(partner, std::move(outgoing))};
    UNISONO_TRY(push(call, partner));
  }
  return std::ranges::find(partner.reads, thread_block, &Read::thread_block) == partner.reads.end();
}

Status OneSided::read_directly(CallState& call, Partner& partner, const RemotePart& source,
                               const std::vector<Extent>& destination) {
  partner.memory.extents(source.buffer, source.chunk, source.count, source.tile, there_);
  const ScaleFactor* const factor =
      source.buffer == plan::Buffer::input && call.arithmetic.scales_input() ? &partner.factor
                                                                             : nullptr;
  bounce_.resize(bounce_bytes);
  Status status;
  zip(there_, destination, [&](std::byte* from, std::byte* to, std::size_t bytes, std::size_t) {
    for (std::size_t done = 0; done < bytes && status.ok(); done += bounce_bytes) {
      const std::size_t part = std::min(bounce_bytes, bytes - done);
      status = partner.connection->read_peer(bounce_.data(),
                                             reinterpret_cast<std::uint64_t>(from + done), part);
      if (status.ok()) call.arithmetic.add(to + done, bounce_.data(), part, factor);
    }
  });
  partner.recv->counter().count(source.bytes);
  return status;
}

PutCounts OneSided::puts_to(int peer) const {
  const auto found = std::ranges::find(partners_, peer, &Partner::rank);
  return found == partners_.end() ? PutCounts{} : found->puts;
}

PutCounts OneSided::puts_from(int peer) const {
  const auto found = std::ranges::find(partners_, peer, &Partner::rank);
  if (found == partners_.end() || found->connection == nullptr) return {};
  // Acquire: the bytes of all puts up to this one.
  return {.staged = found->puts_arrived,
          .in_place = found->connection->signals()[transport::in_place_signal].load(
              std::memory_order_acquire)};
}

}  // namespace unisono::engine
