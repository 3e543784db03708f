#include "transport/ofi/outbox.h"

#include <algorithm>

#include "transport/clock.h"
#include "transport/ofi/inbox.h"

namespace unisono::transport::ofi {
namespace {

std::size_t most_piece_bytes(std::size_t most_write_bytes) {
  return std::min(piece_bytes, most_write_bytes);
}

}  // namespace

bool Outbox::merge(Signal signal) {
  for (auto put = waiting_.rbegin(); put != waiting_.rend(); ++put) {
    if (put->bytes > 0 || put->is_posted || put->owes_value) return false;
    if (put->signal.index != signal.index) continue;
    put->signal.value = signal.value;
    return true;
  }
  return false;
}

bool Outbox::add(const std::byte* source, std::size_t bytes, std::size_t offset, Signal signal) {
  if (bytes > 0 && with_bytes_ == most_waiting) return false;
  ++started_;
  if (bytes == 0 && (signal.index < 0 || merge(signal))) {
    // Completes with those before it.
    return true;
  }
  with_bytes_ += bytes > 0 ? 1 : 0;
  waiting_.push_back({.id = ++last_id_,
                      .source = bytes > 0 ? source : nullptr,
                      .bytes = bytes,
                      .offset = offset,
                      .signal = signal,
                      .first = started_});
  return true;
}

bool Outbox::offer(const RemoteMemory& memory, const std::byte* source, std::size_t bytes,
                   std::size_t offset, Signal signal, std::size_t most_write_bytes, Note& offer) {
  if (!add(source, bytes, offset, signal)) return false;
  offer_last(most_write_bytes);
  waiting_.back().is_allowed = false;
  offer = {.sequence = offered_, .value = memory.key, .offset = offset, .bytes = bytes};
  return true;
}

void Outbox::offer_last(std::size_t most_write_bytes) {
  Put& last = waiting_.back();
  offered_ += pieces_of(last.bytes, most_piece_bytes(most_write_bytes));
  last.offered = offered_;
}

Note Outbox::answer(const Note& get, const std::byte* source, std::size_t most_write_bytes) {
  waiting_.push_back({.id = ++last_id_,
                      .source = source,
                      .bytes = static_cast<std::size_t>(get.bytes),
                      .offset = 0,
                      .signal = {},
                      .first = started_ + 1,
                      .answers_from = get.value,
                      .key = get.to_key,
                      .address = get.to_address});
  offer_last(most_write_bytes);
  return {.sequence = offered_, .value = get.sequence, .bytes = waiting_.back().bytes};
}

std::size_t Outbox::unposted_answers(std::uint64_t memory) const {
  const auto is_meant = [memory](const Put& put) { return put.is_answer_from(memory); };
  return static_cast<std::size_t>(std::ranges::count_if(
      waiting_.begin() + static_cast<std::ptrdiff_t>(first_unposted_), waiting_.end(), is_meant));
}

std::size_t Outbox::outstanding_of_answers(std::uint64_t memory) const {
  std::size_t out = 0;
  for (const Put& put : waiting_)
    if (put.is_answer_from(memory)) out += put.outstanding;
  return out;
}

void Outbox::allow(const Note& answer) {
  const auto put = std::ranges::find(waiting_, answer.sequence, &Put::offered);
  if (put == waiting_.end() || put->is_allowed) return;
  put->key = answer.value;
  put->address = answer.offset;
  put->is_allowed = true;
}

bool Outbox::arrived(std::uint64_t count) {
  if (count > sequence_) return false;
  arrived_ = std::max(arrived_, count);
  return true;
}

void Outbox::drop() {
  while (waiting_.size() > first_unposted_) {
    Put& last = waiting_.back();
    if (last.is_under_way()) {
      // Begun: what is under way completes it.
      last.bytes = last.posted_bytes;
      last.signal = {};
      last.owes_value = false;
      last.is_posted = true;
      first_unposted_ = waiting_.size();
      return;
    }
    with_bytes_ -= has_bytes(last) ? 1 : 0;
    waiting_.pop_back();
  }
}

void Outbox::abandon() {
  waiting_.clear();
  with_bytes_ = first_unposted_ = 0;
  outstanding_ = outstanding_with_bytes_ = announcements_ = 0;
  in_place_.clear();
}

std::uint32_t Outbox::increment_of(const Signal& signal) const {
  if (signal.index < 0 || signal.index > static_cast<int>(Immediate::most_index)) return 0;
  const std::uint64_t grows = signal.value - told_[static_cast<std::size_t>(signal.index)];
  return grows <= Immediate::most_increment ? static_cast<std::uint32_t>(grows) : 0;
}

bool Outbox::next(const Facts& peer, fi_addr_t to, std::size_t most_write_bytes, Next& out) {
  if (first_unposted_ == waiting_.size() || sequence_ - arrived_ == Inbox::window) return false;
  const Put& put = waiting_[first_unposted_];
  out.put = put.id;
  const bool is_new = put.signal.index >= 0 &&
                      put.signal.value != told_[static_cast<std::size_t>(put.signal.index)];
  out.has_value = put.owes_value || (put.bytes == 0 && is_new && increment_of(put.signal) == 0);
  if (out.has_value) {
    out.value = {.number = peer.number,
                 .ticket = peer.ticket,
                 .sequence = sequence_,
                 .index = static_cast<std::uint32_t>(put.signal.index),
                 .value = put.signal.value};
    return true;
  }
  if (!put.is_allowed) return false;
  const bool is_in_place = put.offered > 0;
  const std::size_t bytes =
      std::min(put.bytes - put.posted_bytes, most_piece_bytes(most_write_bytes));
  if (is_in_place && !in_place_.has_room(bytes)) return false;
  const bool is_last = put.posted_bytes + bytes == put.bytes;
  const std::uint32_t increment = is_last ? increment_of(put.signal) : 0;
  const Immediate immediate{
      .number = peer.number,
      .sequence = static_cast<std::uint8_t>(sequence_),
      .index = increment > 0 ? static_cast<std::uint32_t>(put.signal.index) : 0,
      .is_in_place = is_in_place,
      .increment = increment};
  out.write = {
      .source = put.source + put.posted_bytes,
      .descriptor = put.lent.descriptor(),
      .bytes = bytes,
      .to = to,
      .address = (is_in_place ? put.address : peer.memory_address + put.offset) + put.posted_bytes,
      .key = is_in_place ? put.key : peer.memory_key};
  out.announcement = {.sequence = sequence_, .immediate = immediate.pack(), .put = put.id};
  return true;
}

Outbox::Source Outbox::source() {
  Put& put = waiting_[first_unposted_];
  return {.bytes = {put.source, put.bytes}, .lent = put.lent};
}

void Outbox::posted(const Next& what, bool is_apart) {
  Put& put = waiting_[first_unposted_];
  ++sequence_;
  if (what.has_value || is_apart) {
    ++put.announcements;
    ++announcements_;
  }
  if (!what.has_value) {
    put.posted_bytes += what.write.bytes;
    ++put.outstanding;
    ++outstanding_;
    outstanding_with_bytes_ += put.counts_as_bytes();
    if (put.offered > 0) in_place_.posted(what.write.bytes, now_ns());
  }
  if (put.posted_bytes < put.bytes) return;
  if (put.signal.index >= 0) {
    std::uint64_t& told = told_[static_cast<std::size_t>(put.signal.index)];
    const bool was_told = what.has_value || increment_of(put.signal) > 0;
    if (!was_told && told != put.signal.value) {
      put.owes_value = true;
      return;
    }
    told = put.signal.value;
  }
  put.is_posted = true;
  ++first_unposted_;
  forget_complete();
}

void Outbox::completed_write(std::uint64_t id, std::size_t bytes) {
  const auto put = std::ranges::lower_bound(waiting_, id, {}, &Put::id);
  // One that was abandoned is not there.
  if (put == waiting_.end() || put->id != id) return;
  --outstanding_;
  outstanding_with_bytes_ -= put->counts_as_bytes();
  if (put->offered > 0) in_place_.completed(bytes, now_ns());
  --put->outstanding;
  forget_complete();
}

void Outbox::completed_announcement(std::uint64_t id) {
  const auto put = std::ranges::lower_bound(waiting_, id, {}, &Put::id);
  if (put == waiting_.end() || put->id != id) return;
  --announcements_;
  --put->announcements;
  forget_complete();
}

void Outbox::forget_complete() {
  while (!waiting_.empty() && waiting_.front().is_posted && !waiting_.front().is_under_way()) {
    with_bytes_ -= has_bytes(waiting_.front()) ? 1 : 0;
    waiting_.pop_front();
    --first_unposted_;
  }
}

}  // namespace unisono::transport::ofi
