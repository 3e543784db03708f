#include "transport/socket/inbox.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/try.h"
#include "transport/fault.h"

namespace unisono::transport::socket {
namespace {

// A peer that sends without end must not keep this thread for ever: so many reads of one stream in
// one call.
constexpr int max_reads = 64;

// Keeps the least number first. What comes last is mostly the largest.
template <class Item>
void insert(Ring<Item>& waiting, Item item) {
  waiting.push(std::move(item));
  for (std::uint64_t at = waiting.end() - 1;
       at != waiting.begin() && waiting[at].pieces < waiting[at - 1].pieces; --at)
    std::swap(waiting[at], waiting[at - 1]);
}

}  // namespace

FrameReader::Room FrameReader::room() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, buffered());
    end_ -= begin_;
    begin_ = 0;
  }
  const std::size_t left = payload_left();
  return {.payload = left > 0 ? place_ + payload_done_ : nullptr,
          .payload_bytes = left,
          .buffer = buffer_.data() + end_,
          .buffer_bytes = std::max(read_ahead_, end_) - end_};
}

void FrameReader::took(std::size_t bytes) {
  const std::size_t direct = std::min(bytes, payload_left());
  if (direct > 0) land(place_ + payload_done_, direct);
  end_ += bytes - direct;
}

// The next bytes of the payload, which are at their place already or are copied to it.
void FrameReader::land(const std::byte* from, std::size_t bytes) {
  std::byte* const to = place_ + payload_done_;
  if (from != to) std::memcpy(to, from, bytes);
  if (opener_ != nullptr) opener_->add(to, bytes, to);
  payload_done_ += bytes;
}

Status FrameReader::check_seal(SealTag tag) {
  const Status right = opener_->check(tag);
  if (right.ok()) return {};
  return peer_failure(FailureReason::link, peer_, "data from rank ", peer_, " on stream ", stream_,
                      " failed authentication: ", right.error().message);
}

Result<std::optional<Frame>> FrameReader::next_head() {
  constexpr std::size_t tag_bytes = sys::Seal::tag_bytes;
  const std::size_t sealed_bytes = frame_bytes + (opener_ != nullptr ? tag_bytes : 0);
  if (buffered() < sealed_bytes) return std::optional<Frame>();
  const std::span<const std::byte, frame_bytes> head(buffer_.data() + begin_, frame_bytes);
  if (opener_ != nullptr) {
    opener_->begin(head);
    UNISONO_TRY(check_seal(SealTag(head.data() + frame_bytes, tag_bytes)));
  }
  const Frame frame = decode(head);
  UNISONO_TRY(check(frame, stream_, numbers_, geometry_, peer_));
  begin_ += sealed_bytes;
  return std::optional<Frame>(frame);
}

Result<std::byte*> FrameReader::place_of(const Frame& frame) {
  if (frame.memory() != 0)
    return exposed_->place(Access::put, frame.memory(), frame.offset, frame.bytes);
  if (frame.type == Frame::Type::answer) return gets_->place(frame);
  return frame.is_in_region() ? region_ + frame.offset : nullptr;
}

Result<std::optional<Frame>> FrameReader::next() {
  if (!current_) {
    UNISONO_ASSIGN(current_, next_head());
    if (!current_) return std::optional<Frame>();
    payload_done_ = 0;
    if (current_->bytes > 0)
      read_ahead_ = current_->bytes > buffer_.size() ? head_buffer_bytes : buffer_.size();
    auto place = place_of(*current_);
    if (!place.ok()) current_.reset();
    UNISONO_ASSIGN(place_, std::move(place));
    if (opener_ != nullptr && current_->bytes > 0) opener_->begin({});
  }
  if (const std::size_t here = std::min(payload_left(), buffered()); here > 0) {
    land(buffer_.data() + begin_, here);
    begin_ += here;
  }
  if (payload_left() > 0) return std::optional<Frame>();
  if (opener_ != nullptr && current_->bytes > 0) {
    constexpr std::size_t tag_bytes = sys::Seal::tag_bytes;
    if (buffered() < tag_bytes) return std::optional<Frame>();
    UNISONO_TRY(check_seal(SealTag(buffer_.data() + begin_, tag_bytes)));
    begin_ += tag_bytes;
  }
  const Frame complete = *current_;
  current_.reset();
  return std::optional<Frame>(complete);
}

void FrameReader::drop() {
  if (is_answer()) gets_->take_back(*current_);
  current_.reset();
  begin_ = end_ = 0;
}

Inbox::Inbox(Streams& streams, std::byte* region, const ExposedMemory& exposed, Gets& gets,
             std::atomic<std::uint64_t>* signals, const Geometry& geometry, int peer, int ranks,
             Numbers numbers)
    : streams_(streams),
      region_(region),
      exposed_(exposed),
      gets_(gets),
      geometry_(geometry),
      signals_(signals),
      peer_(peer),
      ranks_(ranks),
      numbers_(numbers) {
  incoming_.reserve(streams.size());
  for (std::size_t i = 0; i < streams.size(); ++i) incoming_.push_back(incoming_of(i));
}

Inbox::Incoming Inbox::incoming_of(std::size_t stream) const {
  return {.reader = {region_, exposed_, gets_, geometry_, static_cast<int>(stream), peer_,
                     streams_[stream]->opener(), numbers_}};
}

// A stream that is held up is read on as soon as the others have brought what it waits for: there
// may be no further event of it.
Status Inbox::receive() {
  for (bool again = true; again;) {
    const std::uint64_t before = arrivals_.in_order();
    bool is_held_up = false;
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      UNISONO_TRY(receive_from(i));
      is_held_up |= !may_read(i);
    }
    again = is_held_up && arrivals_.in_order() != before;
  }
  return {};
}

Status Inbox::receive_from(std::size_t stream) {
  Readiness& readiness = streams_[stream]->readiness();
  Incoming& incoming = incoming_[stream];
  if (incoming.is_closed) return {};
  if (!readiness.readable.load(std::memory_order_relaxed)) return {};
  readiness.readable.store(false, std::memory_order_relaxed);
  // A piece and frames may be left from when this stream was held up.
  if (const auto ahead = std::exchange(incoming.ahead, std::nullopt))
    UNISONO_TRY(note_piece(*ahead, stream, false));
  UNISONO_TRY(take_frames(stream));
  for (int reads = 0; reads < max_reads && may_read(stream); ++reads) {
    const FrameReader::Room room = incoming.reader.room();
    const std::array parts{iovec{.iov_base = room.payload, .iov_len = room.payload_bytes},
                           iovec{.iov_base = room.buffer, .iov_len = room.buffer_bytes}};
    const std::span<const iovec> used =
        room.payload_bytes > 0 ? std::span(parts) : std::span(parts).subspan(1);
    const sys::Transferred got = sys::receive_some(streams_[stream]->socket(), used);
    if (got.error == EFAULT && incoming.reader.memory() != 0)
      return misuse("memory that this rank exposes to rank ", peer_,
                    " was unmapped; withdraw it before it is freed");
    if (got.error == EFAULT && incoming.reader.is_answer())
      return misuse("memory that this rank gets into from rank ", peer_,
                    " was unmapped; keep it until the get is complete");
    const bool orderly = incoming.said_bye && incoming.reader.between_frames();
    if (got.error != 0 || (got.ended && !orderly)) streams_[stream]->set_broken();
    if (got.error != 0 || got.ended) {
      incoming.ended = true;
      incoming.code = got.error;
      return {};
    }
    incoming.reader.took(got.bytes);
    UNISONO_TRY(take_frames(stream));
    // Less than there was room for, or nothing, was all there is, and the next byte makes an edge;
    // an end that has been told already makes none.
    const bool drained = got.bytes < room.payload_bytes + room.buffer_bytes &&
                         !readiness.ending.load(std::memory_order_relaxed);
    if (drained && may_read(stream)) return {};
  }
  // There may be more, though no edge will say so.
  readiness.readable.store(true, std::memory_order_relaxed);
  return {};
}

Status Inbox::take_frames(std::size_t stream) {
  while (may_read(stream)) {
    UNISONO_ASSIGN(const auto frame, incoming_[stream].reader.next());
    if (!frame) return {};
    UNISONO_TRY(accept(*frame, stream));
  }
  return {};
}

Status Inbox::accept(const Frame& frame, std::size_t stream) {
  Incoming& from = incoming_[stream];
  if (from.said_bye)
    return peer_error(peer_, "rank ", peer_, " sent data after it had closed the connection");
  from.has_heard = true;
  const std::optional<Frame> answer = std::exchange(from.answer, std::nullopt);
  switch (frame.type) {
    case Frame::Type::answer:
      from.answer = frame;
      if (all_have_numbers()) return {};
      return note_piece(frame.pieces, stream, false);
    case Frame::Type::piece:
      return note_piece(frame.pieces, stream, true);
    case Frame::Type::whole:
      if (!answer)
        return peer_error(peer_, "rank ", peer_, " confirmed an answer on stream ", stream,
                          ", which brought none before");
      if (all_have_numbers()) UNISONO_TRY(note_piece(answer->pieces, stream, true));
      gets_.arrived(*answer);
      return {};
    case Frame::Type::get:
      if (!all_have_numbers()) return gets_.ask(frame);
      return accept_get(frame, number_of(frame), stream);
    case Frame::Type::acknowledge:
      acknowledged_ = std::max(acknowledged_, frame.pieces);
      return {};
    case Frame::Type::closed:
      return accept_closed(frame);
    case Frame::Type::fault: {
      const auto fault = unpack_fault(frame.value, ranks_);
      if (!fault) return impossible_fault(peer_, frame.value, ranks_);
      // A peer that has told what went wrong may give up for another reason later.
      if (!fault_) fault_ = fault;
      return {};
    }
    case Frame::Type::bye:
      from.said_bye = true;
      total_ = std::max(total_, frame.pieces);
      return {};
    case Frame::Type::put:
    case Frame::Type::signal:
      break;
  }
  if (all_have_numbers()) {
    if (frame.signal != Frame::no_signal)
      insert(waiting_, {.index = frame.signal, .value = frame.value, .pieces = frame.pieces});
    return note_piece(frame.pieces, stream, false);
  }
  if (frame.pieces < last_pieces_)
    return peer_error(peer_, "rank ", peer_, " reports ", frame.pieces, " pieces; it reported ",
                      last_pieces_, " before");
  last_pieces_ = frame.pieces;
  if (frame.signal == Frame::no_signal) return {};
  waiting_.push({.index = frame.signal, .value = frame.value, .pieces = frame.pieces});
  release_signals();
  return {};
}

Status Inbox::accept_get(const Frame& get, std::uint64_t number, std::size_t stream) {
  insert(waiting_gets_, {.frame = get, .pieces = number});
  return note_piece(number, stream, false);
}

// Frames of the peer that has closed one stream come on another, in an order of their own.
Status Inbox::accept_closed(const Frame& frame) {
  if (frame.value >= incoming_.size())
    return peer_error(peer_, "rank ", peer_, " closed stream ", frame.value, " of ",
                      incoming_.size());
  const auto stream = static_cast<std::size_t>(frame.value);
  // It may have been said again before the stream came back.
  if (frame.offset < generation(stream)) return {};
  if (frame.offset > generation(stream)) {
    const bool is_next = frame.offset - generation(stream) == 1;
    if (!is_next || !is_closed(stream) || !came_at_peer(stream) || frame.pieces > 0)
      return peer_error(peer_, "rank ", peer_, " closed stream ", frame.value, " after ",
                        frame.pieces, " frames when it had come back ", frame.offset,
                        " times; here it had ", generation(stream), " times");
    skip(stream);
  }
  auto& came = incoming_[stream].came_at_peer;
  if (came && *came != frame.pieces)
    return peer_error(peer_, "rank ", peer_, " counted ", frame.pieces, " frames on stream ",
                      frame.value, ", which it closed after ", *came);
  came = frame.pieces;
  return {};
}

void Inbox::reopen(std::size_t stream) {
  const std::uint32_t generation = incoming_[stream].generation;
  incoming_[stream] = incoming_of(stream);
  incoming_[stream].generation = generation + 1;
}

void Inbox::skip(std::size_t stream) {
  reopen(stream);
  incoming_[stream].ended = incoming_[stream].is_closed = true;
  told_ = 0;
}

void Inbox::close(std::size_t stream) {
  Incoming& from = incoming_[stream];
  if (from.answer) gets_.take_back(*from.answer);
  from.answer.reset();
  from.reader.drop();
  from.ended = from.is_closed = true;
  told_ = 0;
}

std::optional<std::uint64_t> Inbox::acknowledgement() const {
  const std::uint64_t have = arrivals_.in_order();
  const bool is_due = have > told_ && (told_ < awaited_ || have - told_ >= acknowledge_each);
  return is_due ? std::optional(have) : std::nullopt;
}

// Numbers of frames that may come are less than 2^32 ahead of what has come in order.
std::uint64_t Inbox::number_of(const Frame& frame) const {
  const std::uint64_t next = arrivals_.in_order();
  return next + (frame.signal - static_cast<std::uint32_t>(next));
}

Status Inbox::release_gets() {
  while (!waiting_gets_.empty() && have_pieces(waiting_gets_[waiting_gets_.begin()].pieces)) {
    const Frame get = waiting_gets_[waiting_gets_.begin()].frame;
    waiting_gets_.pop();
    UNISONO_TRY(gets_.ask(get));
  }
  return {};
}

bool Inbox::receives_into(std::uint64_t memory) const {
  return std::ranges::any_of(incoming_, [memory](const Incoming& from) {
    const std::uint64_t there = from.reader.memory();
    if (memory == 0) return there != 0 || from.reader.is_answer();
    return there == memory;
  });
}

Status Inbox::note_piece(std::uint64_t number, std::size_t stream, bool is_awaited) {
  switch (arrivals_.note(number)) {
    case Arrivals::Outcome::counted:
      ++incoming_[stream].came;
      if (is_awaited) awaited_ = std::max(awaited_, number + 1);
      release_signals();
      if (!waiting_gets_.empty()) return release_gets();
      break;
    case Arrivals::Outcome::repeated:
      return peer_error(peer_, "rank ", peer_, " sent piece ", number, " again, on stream ",
                        stream);
    case Arrivals::Outcome::ahead:
      if (all_have_numbers())
        return peer_error(peer_, "rank ", peer_, " sent frame ", number, ", and not those from ",
                          arrivals_.in_order(), " on");
      incoming_[stream].ahead = number;
      break;
  }
  return {};
}

void Inbox::release_signals() {
  while (!waiting_.empty()) {
    const WaitingSignal& signal = waiting_[waiting_.begin()];
    if (!have_pieces(signal.pieces)) return;
    // A value put without bytes may be overtaken by a later one. Release, for a reader in another
    // thread than the one that makes progress.
    std::atomic<std::uint64_t>& target = signals_[signal.index];
    if (target.load(std::memory_order_relaxed) < signal.value)
      target.store(signal.value, std::memory_order_release);
    waiting_.pop();
  }
}

bool Inbox::said_bye() const {
  if (all_have_numbers() && std::ranges::any_of(incoming_, &Incoming::is_closed))
    return arrivals_.in_order() >= total_ && std::ranges::any_of(incoming_, &Incoming::said_bye) &&
           std::ranges::all_of(
               incoming_, [](const Incoming& from) { return from.said_bye || from.is_closed; });
  return std::ranges::all_of(incoming_, [](const Incoming& from) { return from.said_bye; });
}

bool Inbox::over() const {
  const bool others_bring_it = all_have_numbers();
  for (std::size_t i = 0; i < incoming_.size(); ++i)
    if (!others_bring_it && incoming_[i].ended && streams_[i]->broken()) return true;
  return std::ranges::all_of(incoming_,
                             [](const Incoming& from) { return from.said_bye || from.ended; });
}

}  // namespace unisono::transport::socket
