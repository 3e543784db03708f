#include "transport/socket/outbox.h"

#include <algorithm>

#include "base/error.h"
#include "base/try.h"
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
              .frames_retained = 0,
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
              .frames_retained = 0,
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
              .frames_retained = 0,
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

void Outbox::withdraw(std::uint64_t key) {
  if (!retained_) return;
  for (std::uint64_t i = puts_.begin(); i != puts_.end(); ++i)
    if (puts_[i].type == Frame::Type::answer && puts_[i].key == key) retained_->drop_payload(i);
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
    const std::uint64_t before = cut_so_far();
    for (auto& stream : streams_) stream->send(*this);
    cut();
    again = cut_so_far() != before;
  }
}

void Outbox::cut() {
  if (retained_ && !cut_lost()) return;
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
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (!is_open(i)) continue;
    lanes_.look(
        i,
        streams_[i]->unsent_bytes() + sys::unacknowledged_bytes(streams_[i]->socket()).value_or(0),
        now);
  }
}

std::optional<Lanes::Piece> Outbox::next_piece(const Put& put) {
  look_for_room();
  return lanes_.next(put.bytes, put.bytes - put.cut_bytes, uncut_bytes_);
}

void Outbox::look_for_room() {
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const Stream& stream = *streams_[i];
    lanes_.set_room(
        i, stream.has_room() && (!lanes_.learns() || stream.unsent_bytes() < most_unsent_bytes));
    if (!lanes_.learns()) lanes_.look(i, stream.unsent_bytes(), 0);
  }
}

// What was lost goes before all that is new. A short frame goes where its like do, and a long one
// to where it arrives first.
bool Outbox::cut_lost() {
  while (!retained_->lost().empty()) {
    const std::uint64_t number = retained_->lost()[retained_->lost().begin()];
    Retained::Item& item = (*retained_)[number];
    is_withdrawn_ |= item.is_lost();
    if (is_withdrawn_) return false;
    look_for_room();
    const auto stream = item.is_piece() ? lanes_.soonest(item.frame.bytes)
                                        : std::optional<std::size_t>(lanes_.first());
    if (!stream || !is_open(*stream) || !streams_[*stream]->has_room()) return false;
    retained_->give(item, *stream);
    if (Put* put = put_of(item.put)) ++put->frames_waiting;
    streams_[*stream]->push(item.frame, item.payload, number);
    if (item.frame.type == Frame::Type::answer)
      streams_[*stream]->push({.type = Frame::Type::whole}, nullptr, no_put);
    if (item.is_piece()) lanes_.give({*stream, item.frame.bytes});
    retained_->lost_is_given();
  }
  return true;
}

void Outbox::push(std::size_t stream, Frame frame, const std::byte* payload, std::uint64_t token) {
  if (!retained_) {
    streams_[stream]->push(frame, payload, token);
    return;
  }
  const std::uint64_t number = retained_->next();
  frame.set_number(number);
  Put* const put = put_of(token);
  const bool is_long = frame.type == Frame::Type::answer ||
                       (frame.type == Frame::Type::piece && put->bytes > most_copied_put_bytes);
  retained_->add(frame, payload, token, stream, !is_long);
  if (put != nullptr) ++put->frames_retained;
  streams_[stream]->push(frame, payload, number);
}

// False when a stream has no room for the next frame.
bool Outbox::cut_put(Put& put, std::uint64_t index) {
  if (put.type == Frame::Type::get) {
    if (!first_has_room()) return false;
    ++put.frames_waiting;
    push(lanes_.first(),
         {.type = Frame::Type::get, .offset = put.offset, .value = put.memory, .pieces = put.bytes},
         nullptr, index);
    return true;
  }
  if (is_one_frame(put)) {
    if (!first_has_room()) return false;
    const bool signals = put.signal.index >= 0;
    uncut_bytes_ -= put.bytes;
    ++put.frames_waiting;
    push(lanes_.first(),
         {.type = Frame::Type::put,
          .signal = signals ? static_cast<std::uint32_t>(put.signal.index) : Frame::no_signal,
          .offset = put.offset,
          .bytes = put.bytes,
          .value = signals ? put.signal.value : 0,
          .pieces = number()},
         put.source, index);
    return true;
  }
  if (!cut_pieces(put, index)) return false;
  if (put.signal.index < 0) return true;
  if (!first_has_room()) return false;
  ++put.frames_waiting;
  push_signal(put.signal, index);
  return true;
}

bool Outbox::cut_pieces(Put& put, std::uint64_t index) {
  const bool is_answer = put.type == Frame::Type::answer;
  while (put.cut_bytes < put.bytes) {
    const auto piece = has_number() ? next_piece(put) : std::nullopt;
    if (!piece) return false;
    ++put.frames_waiting;
    push(piece->lane,
         {.type = is_answer ? Frame::Type::answer : Frame::Type::piece,
          .offset = put.offset + put.cut_bytes,
          .bytes = piece->bytes,
          .value = put.memory,
          .pieces = number()},
         put.source + put.cut_bytes, index);
    if (is_answer) {
      put.frames_waiting += retained_ ? 0 : 1;
      streams_[piece->lane]->push({.type = Frame::Type::whole}, nullptr,
                                  retained_ ? no_put : index);
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
    if (!first_has_room()) return;
    latest_[i].waits = false;
    --latest_waiting_;
    ++signal_frames_waiting_;
    push_signal({static_cast<int>(i), latest_[i].value}, signal_token);
  }
}

void Outbox::push_signal(Signal signal, std::uint64_t token) {
  push(lanes_.first(),
       {.type = Frame::Type::signal,
        .signal = static_cast<std::uint32_t>(signal.index),
        .value = signal.value,
        .pieces = number()},
       nullptr, token);
}

// A put that was dropped when it was partly sent is there no more.
Outbox::Put* Outbox::put_of(std::uint64_t token) {
  return token >= puts_.begin() && token < puts_.end() ? &puts_[token] : nullptr;
}

void Outbox::pop_complete() {
  while (puts_.begin() != cut_ && puts_[puts_.begin()].frames_waiting == 0 &&
         puts_[puts_.begin()].frames_retained == 0)
    puts_.pop();
}

void Outbox::frame_sent(std::uint64_t token) {
  bool is_released = false;
  if (retained_ && token != no_put) {
    const Retained::Left left = retained_->left(token);
    token = left.put;
    is_released = !left.is_awaited;
  }
  if (token == signal_token) {
    --signal_frames_waiting_;
    return;
  }
  Put* const put = put_of(token);
  if (put == nullptr) return;
  --put->frames_waiting;
  if (is_released) --put->frames_retained;
  pop_complete();
}

Status Outbox::acknowledged(std::uint64_t number, int peer) {
  if (!retained_) return {};
  if (number > retained_->next())
    return peer_error(peer, "rank ", peer, " acknowledged ", number, " frames; ", retained_->next(),
                      " were sent");
  while (retained_->begin() < number) {
    const Retained::Item& item = (*retained_)[retained_->begin()];
    if (item.waits)
      return peer_error(peer, "rank ", peer, " acknowledged frame ", retained_->begin(),
                        ", which was not sent");
    if (Put* const put = put_of(item.put)) --put->frames_retained;
    retained_->pop();
  }
  pop_complete();
  return {};
}

bool Outbox::acknowledge(std::uint64_t number) {
  // Also behind pieces that have not left: the peer waits for it.
  for (std::size_t i = 0; i < streams_.size(); ++i) lanes_.set_room(i, streams_[i]->has_room());
  const auto stream = lanes_.soonest(0);
  if (!stream) return false;
  streams_[*stream]->push({.type = Frame::Type::acknowledge, .pieces = number}, nullptr, no_put);
  return true;
}

void Outbox::close(std::size_t stream) {
  lanes_.close(stream);
  streams_[stream]->close(*this);
}

Result<std::uint64_t> Outbox::give_again(std::size_t stream, std::uint64_t came, int peer) {
  const std::uint64_t before = retained_->lost().end();
  UNISONO_TRY(retained_->lose(stream, came, peer));
  return retained_->lost().end() - before;
}

void Outbox::drop() {
  for (auto& stream : streams_) stream->drop_payloads();
  if (retained_) retained_->drop_payloads();
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
