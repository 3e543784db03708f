// One rank's end of what it and a rank of another host tell each other about windows.
//
// Both ask, and both answer in order. An end has at most most_questions open, so the other end's
// list of answers is bounded, and an end that waits for a slot still reads: neither waits for the
// other to read first.
#pragma once

#include <unisono/result.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>

#include "comm/device/signals.h"
#include "comm/run/connections.h"
#include "comm/windows/message.h"
#include "comm/windows/open_windows.h"

namespace unisono::comm {

// A rank has asked another one, and waits for the answer. The lock of WindowService guards all of
// it until `is_answered`; then it stays as it is.
struct WindowQuestion {
  std::byte* destination = nullptr;  // of a get; nullptr once nobody waits any more
  std::uint64_t missing_bytes = 0;   // of a get
  std::uint64_t value = 0;           // of a word: as it was before
  std::optional<Error> refusal;
  bool is_answered = false;
};

class WindowPeer {
 public:
  static constexpr std::size_t most_questions = 64;

  WindowPeer(Connections& connections, const OpenWindows& windows, Signals& signals,
             const transport::FifoOptions& options, int self, int peer);

  int rank() const { return peer_; }
  // Reads what has come and sends what waits to be. Whether anything moved.
  Result<bool> advance();
  // Sends a put's first bytes, as many as there is room for, and its signal behind the last one.
  // How many were sent, which need not stay; nothing where there is no room.
  Result<std::optional<std::size_t>> try_put(const WindowMessage& put,
                                             std::span<const std::byte> data);
  Result<bool> try_signal(int signal);
  // False: there is no room. The question is answered in some later advance().
  Result<bool> try_ask(WindowMessage message, std::shared_ptr<WindowQuestion> question);
  // Why a put was refused, once.
  std::optional<Error> take_refusal();
  // Nothing is left that this end owes the other.
  bool is_drained() const;

 private:
  struct Answer {
    WindowMessage message;
    std::uint64_t source_offset = 0;  // of data: in the window
    std::uint64_t left_bytes = 0;
  };
  Result<bool> read_one();
  Status execute(const ReadWindowMessage& read);
  Status execute_word(const WindowMessage& message);
  // The data of a message have come, inline or as a message of their own.
  Status take_data(const WindowMessage& message, std::span<const std::byte> inline_data);
  Status take_answer(const WindowMessage& message);
  Status answer(const Answer& answer);
  Result<bool> send_answers();
  Result<bool> send_piece(Answer& answer);
  // Whether a header and its data may be sent now.
  Result<bool> has_room();
  Status send(const WindowMessage& message, std::span<const std::byte> data);
  std::size_t piece_bytes() const;
  Error violation(const char* what) const;

  Connections& connections_;
  const OpenWindows& windows_;
  Signals& signals_;
  const int self_;
  const int peer_;
  const std::size_t slot_bytes_;
  const std::uint64_t usable_slots_;
  transport::SendFifo* send_ = nullptr;  // both once the connection is ready
  transport::RecvFifo* recv_ = nullptr;
  bool is_flushed_ = true;                // at the end of the last advance()
  std::optional<WindowMessage> data_of_;  // what the next message is the data of
  std::deque<Answer> answers_;
  bool answers_a_put_ = false;  // a refusal of one is among them
  std::uint64_t last_question_ = 0;
  struct Asked {
    std::uint64_t number;
    std::shared_ptr<WindowQuestion> question;
  };
  std::deque<Asked> asked_;  // the first is answered next
  std::optional<Error> refusal_;
};

}  // namespace unisono::comm
