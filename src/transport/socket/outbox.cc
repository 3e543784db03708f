#include "transport/socket/outbox.h"

#include <algorithm>

#include "transport/clock.h"

namespace unisono::transport::socket {

bool Outbox::add(const std::byte* source, std::size_t bytes, std::size_t offset, Signal signal,
                 std::uint64_t memory) {
  if (bytes == 0) {
    if (signal.index >= 0)
      add_signal(signal);
    else
      ++started_;
    return true;
  }
  if (puts_.size() >= max_puts) return false;
  uncut_bytes_ += bytes;
  puts_.push({.type = Frame::Type::put,
              .source = source,
              .bytes = bytes,
              .offset = offset,
              .memory = memory,
              .key = 0,
              .signal = signal,
              .cut_bytes = 0,
              .frames_waiting = 0,
              .number = ++started_});
  return true;
}

bool Outbox::add_get(std::uint64_t memory, std::size_t offset, std::size_t bytes) {
  if (puts_.size() >= max_puts) return false;
  puts_.push({.type = Frame::Type::get,
              .source = nullptr,
              .bytes = bytes,
              .offset = offset,
              .memory = memory,
              .key = 0,
              .signal = {},
              .cut_bytes = 0,
              .frames_waiting = 0,
              .number = started_ + 1});
  return true;
}

void Outbox::add_answer(std::uint64_t number, const std::byte* source, std::size_t bytes,
                        std::uint64_t key) {
  uncut_bytes_ += bytes;
  puts_.push({.type = Frame::Type::answer,
              .source = source,
              .bytes = bytes,
              .offset = 0,
              .memory = number,
              .key = key,
              .signal = {},
              .cut_bytes = 0,
              .frames_waiting = 0,
              .number = started_ + 1});
}

std::uint64_t Outbox::answers_from(std::uint64_t key) const {
  std::uint64_t count = 0;
  for (std::uint64_t i = puts_.begin(); i != puts_.end(); ++i) {
    const Put& put = puts_[i];
    const bool has_left = i < cut_ && put.frames_waiting == 0;
    const bool is_meant = put.type == Frame::Type::answer && (key == 0 || put.key == key);
    count += is_meant && !has_left ? 1 : 0;
  }
  return count;
}

void Outbox::add_signal(Signal signal) {
  if (latest_waiting_ + signal_frames_waiting_ == 0) before_first_signal_ = started_;
  ++started_;
  Latest& latest = latest_[static_cast<std::size_t>(signal.index)];
  latest.value = std::max(latest.value, signal.value);
  if (latest.waits) return;
  latest.waits = true;
  ++latest_waiting_;
}

void Outbox::send() {
  look_at_lanes();
  // What was sent makes room for what waits to be cut; a stream that is full ends it.
  for (bool again = true; again;) {
    cut();
    const std::uint64_t before = cut_ + lanes_.pieces();
    for (auto& stream : streams_) stream->send(*this);
    cut();
    again = cut_ + lanes_.pieces() != before;
  }
}

void Outbox::cut() {
  while (cut_ != puts_.end()) {
    if (!cut_put(puts_[cut_], cut_)) return;
    ++cut_;
  }
  // After every put that was accepted before them.
  cut_signals();
}

void Outbox::look_at_lanes() {
  if (!lanes_.learns() || lanes_.outstanding_bytes() + uncut_bytes_ == 0) return;
  const std::int64_t now = now_ns();
  if (now - looked_ns_ < look_interval_ns) return;
  looked_ns_ = now;
  for (std::size_t i = 0; i < streams_.size(); ++i)
    lanes_.look(
        i,
        streams_[i]->unsent_bytes() + sys::unacknowledged_bytes(streams_[i]->socket()).value_or(0),
        now);
}

std::optional<Lanes::Piece> Outbox::next_piece(const Put& put) {
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const Stream& stream = *streams_[i];
    lanes_.set_room(
        i, stream.has_room() && (!lanes_.learns() || stream.unsent_bytes() < most_unsent_bytes));
    if (!lanes_.learns()) lanes_.look(i, stream.unsent_bytes(), 0);
  }
  return lanes_.next(put.bytes, put.bytes - put.cut_bytes, uncut_bytes_);
}

// False when a stream has no room for the next frame.
bool Outbox::cut_put(Put& put, std::uint64_t index) {
  if (put.type == Frame::Type::get) {
    if (!stream_0_has_room()) return false;
    ++put.frames_waiting;
    streams_[0]->push(
        {.type = Frame::Type::get, .offset = put.offset, .value = put.memory, .pieces = put.bytes},
        nullptr, index);
    return true;
  }
  if (is_one_frame(put)) {
    if (!stream_0_has_room()) return false;
    const bool signals = put.signal.index >= 0;
    uncut_bytes_ -= put.bytes;
    ++put.frames_waiting;
    streams_[0]->push(
        {.type = Frame::Type::put,
         .signal = signals ? static_cast<std::uint32_t>(put.signal.index) : Frame::no_signal,
         .offset = put.offset,
         .bytes = put.bytes,
         .value = signals ? put.signal.value : 0,
         .pieces = lanes_.pieces()},
        put.source, index);
    return true;
  }
  if (!cut_pieces(put, index)) return false;
  if (put.signal.index < 0) return true;
  if (!stream_0_has_room()) return false;
  ++put.frames_waiting;
  push_signal(put.signal, index);
  return true;
}

bool Outbox::cut_pieces(Put& put, std::uint64_t index) {
  const bool is_answer = put.type == Frame::Type::answer;
  while (put.cut_bytes < put.bytes) {
    const auto piece = next_piece(put);
    if (!piece) return false;
    Stream& stream = *streams_[piece->lane];
    ++put.frames_waiting;
    stream.push({.type = is_answer ? Frame::Type::answer : Frame::Type::piece,
                 .offset = put.offset + put.cut_bytes,
                 .bytes = piece->bytes,
                 .value = put.memory,
                 .pieces = lanes_.pieces()},
                put.source + put.cut_bytes, index);
    if (is_answer) {
      ++put.frames_waiting;
      stream.push({.type = Frame::Type::whole}, nullptr, index);
    }
    lanes_.give(*piece);
    put.cut_bytes += piece->bytes;
    uncut_bytes_ -= piece->bytes;
  }
  return true;
}

void Outbox::cut_signals() {
  for (std::size_t i = 0; latest_waiting_ > 0 && i < latest_.size(); ++i) {
    if (!latest_[i].waits) continue;
    if (!stream_0_has_room()) return;
    latest_[i].waits = false;
    --latest_waiting_;
    ++signal_frames_waiting_;
    push_signal({static_cast<int>(i), latest_[i].value}, signal_token);
  }
}

void Outbox::push_signal(Signal signal, std::uint64_t token) {
  streams_[0]->push({.type = Frame::Type::signal,
                     .signal = static_cast<std::uint32_t>(signal.index),
                     .value = signal.value,
                     .pieces = lanes_.pieces()},
                    nullptr, token);
}

void Outbox::frame_sent(std::uint64_t token) {
  if (token == signal_token) {
    --signal_frames_waiting_;
    return;
  }
  // It is no put's, or one's that was dropped when it was partly sent.
  if (token < puts_.begin() || token >= puts_.end()) return;
  --puts_[token].frames_waiting;
  while (puts_.begin() != cut_ && puts_[puts_.begin()].frames_waiting == 0) puts_.pop();
}

void Outbox::drop() {
  for (auto& stream : streams_) stream->drop_payloads();
  puts_.clear();
  cut_ = puts_.end();
  uncut_bytes_ = 0;
  cut_signals();
}

std::uint64_t Outbox::completed() const {
  const std::uint64_t puts = puts_.empty() ? started_ : puts_[puts_.begin()].number - 1;
  if (latest_waiting_ + signal_frames_waiting_ == 0) return puts;
  return std::min(puts, before_first_signal_);
}

}  // namespace unisono::transport::socket
