#include "comm/windows/window_peer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "base/error.h"
#include "base/try.h"

namespace unisono::comm {
namespace {

// Plans and groups of messages have the numbers below (point_to_point_channel and tags).
constexpr int window_channel = 1 << 15;
// Messages read in a row before others have their turn.
constexpr int most_read = 16;

}  // namespace

WindowPeer::WindowPeer(Connections& connections, const OpenWindows& windows, Signals& signals,
                       const transport::FifoOptions& options, int self, int peer)
    : connections_(connections),
      windows_(windows),
      signals_(signals),
      self_(self),
      peer_(peer),
      slot_bytes_(transport::slot_payload_bytes(options, Protocol::simple)),
      usable_slots_(static_cast<std::uint64_t>(options.usable_slots())) {}

Error WindowPeer::violation(const char* what) const {
  return peer_error(peer_, "rank ", peer_, " sent rank ", self_, " ", what,
                    "; is it another version of unisono?");
}

std::size_t WindowPeer::piece_bytes() const {
  return usable_slots_ < 2 ? WindowMessage::inline_bytes : slot_bytes_;
}

Result<bool> WindowPeer::advance() {
  if (recv_ == nullptr) {
    UNISONO_ASSIGN(send_, connections_.send_fifo(peer_, window_channel, Protocol::simple));
    if (send_ == nullptr) return false;
    UNISONO_ASSIGN(recv_, connections_.recv_fifo(peer_, window_channel, Protocol::simple));
    if (recv_ == nullptr) return false;
  }
  bool moved = false;
  for (int i = 0; i < most_read; ++i) {
    UNISONO_ASSIGN(const bool has_read, read_one());
    if (!has_read) break;
    moved = true;
  }
  UNISONO_ASSIGN(const bool has_answered, send_answers());
  UNISONO_ASSIGN(const bool has_sent, send_->flush());
  UNISONO_ASSIGN(const bool has_credited, recv_->flush());
  is_flushed_ = has_sent && has_credited;
  return moved || has_answered;
}

Result<bool> WindowPeer::read_one() {
  if (data_of_) {
    UNISONO_ASSIGN(const bool is_there, recv_->arrived(data_of_->bytes));
    if (!is_there) return false;
    const WindowMessage message = *std::exchange(data_of_, std::nullopt);
    UNISONO_TRY(take_data(message, {}));
    UNISONO_TRY(recv_->release());
    return true;
  }
  UNISONO_ASSIGN(const bool is_there, recv_->arrived(window_message_bytes));
  if (!is_there) return false;
  WindowHeader header;
  UNISONO_TRY(recv_->copy_to(header.data(), 0, header.size()));
  UNISONO_TRY(recv_->release());
  auto read = read_window_message(header, slot_bytes_);
  if (!read.ok()) return violation("a message about a window that cannot be read");
  UNISONO_TRY(execute(*read));
  return true;
}

Status WindowPeer::execute(const ReadWindowMessage& read) {
  const WindowMessage& message = read.message;
  switch (message.verb) {
    case WindowVerb::put:
    case WindowVerb::data:
      if (message.is_inline()) return take_data(message, read.data);
      data_of_ = message;
      return {};
    case WindowVerb::get:
      if (windows_.find(message.window, message.offset, message.bytes) == nullptr)
        return answer({.message = {.verb = WindowVerb::refused, .question = message.question}});
      return answer({.message = {.verb = WindowVerb::data,
                                 .window = message.window,
                                 .question = message.question},
                     .source_offset = message.offset,
                     .left_bytes = message.bytes});
    case WindowVerb::word:
      return execute_word(message);
    case WindowVerb::flush:
      return answer({.message = {.verb = WindowVerb::value, .question = message.question}});
    case WindowVerb::signal:
      if (message.signal == no_signal) return violation("a signal without a number");
      signals_.came_from_afar(peer_, message.signal);
      return {};
    case WindowVerb::value:
    case WindowVerb::refused:
      return take_answer(message);
  }
  return violation("a message about a window that cannot be read");
}

Status WindowPeer::execute_word(const WindowMessage& message) {
  std::byte* const place = windows_.find(message.window, message.offset, sizeof(std::uint64_t));
  if (place == nullptr || reinterpret_cast<std::uintptr_t>(place) % sizeof(std::uint64_t) != 0)
    return answer({.message = {.verb = WindowVerb::refused, .question = message.question}});
  UNISONO_TRY(signals_.begin_turn(self_));
  const std::uint64_t before =
      change_word(place, message.operation, message.operand, message.expected);
  signals_.end_turn(self_);
  return answer(
      {.message = {.verb = WindowVerb::value, .question = message.question, .operand = before}});
}

Status WindowPeer::take_data(const WindowMessage& message, std::span<const std::byte> inline_data) {
  const auto copy_to = [&](std::byte* place) -> Status {
    if (!message.is_inline()) return recv_->copy_to(place, 0, message.bytes);
    std::ranges::copy(inline_data, place);
    return {};
  };
  if (message.verb == WindowVerb::put) {
    std::byte* const place = windows_.find(message.window, message.offset, message.bytes);
    if (place == nullptr) {
      if (std::exchange(answers_a_put_, true)) return {};
      return answer({.message = {.verb = WindowVerb::refused}});
    }
    UNISONO_TRY(copy_to(place));
    if (message.signal != no_signal) signals_.came_from_afar(peer_, message.signal);
    return {};
  }
  if (asked_.empty() || asked_.front().number != message.question)
    return violation("bytes of a window that were not asked for");
  WindowQuestion& question = *asked_.front().question;
  if (message.bytes > question.missing_bytes)
    return violation("more bytes of a window than were asked for");
  if (question.destination != nullptr) {
    UNISONO_TRY(copy_to(question.destination));
    question.destination += message.bytes;
  }
  question.missing_bytes -= message.bytes;
  if (question.missing_bytes > 0) return {};
  question.is_answered = true;
  asked_.pop_front();
  return {};
}

Status WindowPeer::take_answer(const WindowMessage& message) {
  const auto refused = [&] {
    return peer_error(peer_, "rank ", peer_, " has closed the window that rank ", self_,
                      " accesses, or freed the communicator's view of it; close windows only when "
                      "all ranks have ended their accesses");
  };
  if (message.question == 0 && message.verb == WindowVerb::refused) {
    refusal_ = refused();
    return {};
  }
  if (asked_.empty() || asked_.front().number != message.question)
    return violation("an answer about a window that it was not asked for");
  WindowQuestion& question = *asked_.front().question;
  if (message.verb == WindowVerb::refused) question.refusal = refused();
  question.value = message.operand;
  question.is_answered = true;
  asked_.pop_front();
  return {};
}

Status WindowPeer::answer(const Answer& answer) {
  // Questions, and one refusal of puts.
  if (answers_.size() > most_questions) return violation("more questions than it may have open");
  answers_.push_back(answer);
  return {};
}

Result<bool> WindowPeer::send_answers() {
  bool moved = false;
  while (!answers_.empty()) {
    UNISONO_ASSIGN(const bool room, has_room());
    if (!room) break;
    UNISONO_ASSIGN(const bool is_over, send_piece(answers_.front()));
    moved = true;
    if (!is_over) continue;
    if (answers_.front().message.question == 0) answers_a_put_ = false;
    answers_.pop_front();
  }
  return moved;
}

// Whether it was the last one of the answer.
Result<bool> WindowPeer::send_piece(Answer& answer) {
  WindowMessage& message = answer.message;
  if (message.verb != WindowVerb::data) {
    UNISONO_TRY(send(message, {}));
    return true;
  }
  const std::uint64_t bytes = std::min<std::uint64_t>(answer.left_bytes, piece_bytes());
  const std::byte* const place = windows_.find(message.window, answer.source_offset, bytes);
  if (place == nullptr) {  // closed since
    UNISONO_TRY(send({.verb = WindowVerb::refused, .question = message.question}, {}));
    return true;
  }
  message.bytes = bytes;
  UNISONO_TRY(send(message, {place, bytes}));
  answer.source_offset += bytes;
  answer.left_bytes -= bytes;
  return answer.left_bytes == 0;
}

Result<bool> WindowPeer::has_room() {
  if (send_ == nullptr || recv_ == nullptr) return false;
  const std::uint64_t slots = usable_slots_ < 2 ? 1 : 2;
  if (send_->sent() + slots > send_->consumed() + usable_slots_) return false;
  return send_->can_send();
}

Status WindowPeer::send(const WindowMessage& message, std::span<const std::byte> data) {
  const bool is_inline = message.is_inline();
  const WindowHeader header = encode(message, is_inline ? data : std::span<const std::byte>());
  const transport::Piece first{header.data(), header.size()};
  UNISONO_TRY(send_->send(std::span(&first, 1)));
  if (is_inline || !message.has_data()) return {};
  UNISONO_ASSIGN(const bool has_slot, send_->can_send());
  if (!has_slot)
    return bug("rank ", self_, " found one slot to rank ", peer_, " where two were free");
  const transport::Piece second{data.data(), data.size()};
  return send_->send(std::span(&second, 1));
}

Result<std::optional<std::size_t>> WindowPeer::try_put(const WindowMessage& put,
                                                       std::span<const std::byte> data) {
  UNISONO_ASSIGN(const bool room, has_room());
  if (!room) return std::optional<std::size_t>();
  WindowMessage message = put;
  message.bytes = std::min(data.size(), piece_bytes());
  if (message.bytes < data.size()) message.signal = no_signal;
  UNISONO_TRY(send(message, data.first(message.bytes)));
  return std::optional<std::size_t>(message.bytes);
}

Result<bool> WindowPeer::try_signal(int signal) {
  UNISONO_ASSIGN(const bool room, has_room());
  if (!room) return false;
  UNISONO_TRY(send({.verb = WindowVerb::signal, .signal = signal}, {}));
  return true;
}

Result<bool> WindowPeer::try_ask(WindowMessage message, std::shared_ptr<WindowQuestion> question) {
  if (asked_.size() >= most_questions) return false;
  UNISONO_ASSIGN(const bool room, has_room());
  if (!room) return false;
  message.question = ++last_question_;
  asked_.push_back({.number = message.question, .question = std::move(question)});
  UNISONO_TRY(send(message, {}));
  return true;
}

std::optional<Error> WindowPeer::take_refusal() { return std::exchange(refusal_, std::nullopt); }

bool WindowPeer::is_drained() const {
  return answers_.empty() && (send_ == nullptr || (is_flushed_ && !send_->has_pending()));
}

}  // namespace unisono::comm
