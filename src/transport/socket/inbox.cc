#include "transport/socket/inbox.h"

#include <sys/uio.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/try.h"
#include "transport/fault.h"

namespace unisono::transport::socket {
namespace {

// A peer that sends without end must not keep this thread for ever: so many reads of one stream in
// one call.
constexpr int max_reads = 64;

}  // namespace

FrameReader::Room FrameReader::room() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const std::size_t payload_left =
      current_ ? static_cast<std::size_t>(current_->bytes) - payload_done_ : 0;
  return {.payload = payload_left > 0 ? region_ + current_->offset + payload_done_ : nullptr,
          .payload_bytes = payload_left,
          .buffer = buffer_.data() + end_,
          .buffer_bytes = buffer_.size() - end_};
}

void FrameReader::took(std::size_t bytes) {
  if (current_) {
    const std::size_t direct =
        std::min(bytes, static_cast<std::size_t>(current_->bytes) - payload_done_);
    payload_done_ += direct;
    bytes -= direct;
  }
  end_ += bytes;
}

Result<std::optional<Frame>> FrameReader::next() {
  if (!current_) {
    if (end_ - begin_ < frame_bytes) return std::optional<Frame>();
    const Frame frame =
        decode(std::span<const std::byte, frame_bytes>(buffer_.data() + begin_, frame_bytes));
    UNISONO_TRY(check(frame, stream_, geometry_, peer_));
    begin_ += frame_bytes;
    current_ = frame;
    payload_done_ = 0;
  }
  const std::size_t left = static_cast<std::size_t>(current_->bytes) - payload_done_;
  const std::size_t buffered = std::min(left, end_ - begin_);
  if (buffered > 0) {
    std::memcpy(region_ + current_->offset + payload_done_, buffer_.data() + begin_, buffered);
    begin_ += buffered;
    payload_done_ += buffered;
  }
  if (payload_done_ < current_->bytes) return std::optional<Frame>();
  const Frame complete = *current_;
  current_.reset();
  return std::optional<Frame>(complete);
}

Inbox::Inbox(Streams& streams, std::byte* region, std::atomic<std::uint64_t>* signals,
             const Geometry& geometry, int peer)
    : streams_(streams), signals_(signals), geometry_(geometry), peer_(peer) {
  incoming_.reserve(streams.size());
  for (std::size_t i = 0; i < streams.size(); ++i)
    incoming_.push_back({.reader = {region, geometry, static_cast<int>(i), peer}});
}

Status Inbox::receive() {
  for (std::size_t i = 0; i < streams_.size(); ++i) UNISONO_TRY(receive_from(i));
  return {};
}

Status Inbox::receive_from(std::size_t stream) {
  Readiness& readiness = streams_[stream]->readiness();
  Incoming& incoming = incoming_[stream];
  if (incoming.ended || !may_read(stream)) return {};
  if (!readiness.readable.load(std::memory_order_relaxed)) return {};
  readiness.readable.store(false, std::memory_order_relaxed);
  // Frames may be left from when this stream was held up.
  UNISONO_TRY(take_frames(stream));
  for (int reads = 0; reads < max_reads && may_read(stream); ++reads) {
    const FrameReader::Room room = incoming.reader.room();
    const std::array parts{iovec{.iov_base = room.payload, .iov_len = room.payload_bytes},
                           iovec{.iov_base = room.buffer, .iov_len = room.buffer_bytes}};
    const std::span<const iovec> used =
        room.payload_bytes > 0 ? std::span(parts) : std::span(parts).subspan(1);
    const sys::Transferred got = sys::receive_some(streams_[stream]->socket(), used);
    if (got.would_block) return {};
    if (got.error != 0 || (got.ended && !incoming.reader.between_frames()))
      streams_[stream]->set_broken();
    if (got.error != 0 || got.ended) {
      incoming.ended = true;
      return {};
    }
    incoming.reader.took(got.bytes);
    UNISONO_TRY(take_frames(stream));
    // Less than there was room for was all there is, and the next byte makes an edge; an end that
    // has been told already makes none.
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
  if (said_bye_ && stream == 0)
    return peer_error(peer_, "rank ", peer_, " went on sending after it had left");
  switch (frame.type) {
    case Frame::Type::piece:
      ++incoming_[stream].pieces;
      release_signals();
      return {};
    case Frame::Type::fault:
      fault_ = unpack_fault(frame.value);
      return {};
    case Frame::Type::bye:
      said_bye_ = true;
      return {};
    case Frame::Type::put:
    case Frame::Type::signal:
      break;
  }
  if (frame.pieces < last_pieces_)
    return peer_error(peer_, "rank ", peer_, " counts ", frame.pieces, " pieces after ",
                      last_pieces_);
  last_pieces_ = frame.pieces;
  if (frame.signal == Frame::no_signal) return {};
  waiting_.push({.index = frame.signal, .value = frame.value, .pieces = frame.pieces});
  release_signals();
  return {};
}

bool Inbox::have_pieces(std::uint64_t pieces) const {
  const std::uint64_t streams = incoming_.size();
  for (std::uint64_t s = 0; s < streams; ++s) {
    // Of pieces 0 to pieces - 1, those with number = s modulo streams; without overflow.
    const std::uint64_t due = pieces / streams + (pieces % streams > s ? 1 : 0);
    if (incoming_[static_cast<std::size_t>(s)].pieces < due) return false;
  }
  return true;
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

bool Inbox::over() const {
  bool all = true;
  for (std::size_t i = 0; i < incoming_.size(); ++i) {
    if (incoming_[i].ended && streams_[i]->broken()) return true;
    all = all && incoming_[i].ended;
  }
  return all;
}

}  // namespace unisono::transport::socket
