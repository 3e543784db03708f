// Where connections wait that have not passed a listener's gate: a descriptor and some 100 bytes
// each, one second at most, and the oldest goes when there is no room for one more. So strangers
// cannot keep those out who have the right answer, whatever they do.
//
// Shared by the worlds. A Connection is closed when it is destroyed, and has
//   bool tell(span)          takes all of a few bytes now, or fails
//   Heard peek(byte&)        the first byte, which stays
//   Heard hear(span)         takes as many bytes as asked for, once all of them have come
//   std::string host() const who it is, for the log
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/log_limit.h"
#include "sys/world.h"

namespace unisono::sys {

enum class Heard : std::uint8_t { not_all, all, end };

inline constexpr std::int64_t answer_timeout_ns = 1'000'000'000;

template <class Connection>
class WaitingRoom {
 public:
  static_assert(sizeof(Connection) <= 128);
  struct Passed {
    Connection connection;
    std::uint64_t number;
    std::vector<std::byte> answer;
  };

  // Challenges a new connection; its number, or nothing if it is gone already.
  std::optional<std::uint64_t> add(const Gate& gate, Connection connection, std::int64_t now_ns) {
    const std::uint64_t number = ++last_number_;
    if (!connection.tell(gate.challenge(number))) return std::nullopt;
    if (waiting_.size() >= gate.most_waiting()) drop_oldest(now_ns);
    waiting_.emplace(number, Waiting{std::move(connection), now_ns + answer_timeout_ns});
    return number;
  }

  // Looks whether this connection has answered; nothing if it is not here any more.
  std::optional<Passed> look(const Gate& gate, std::uint64_t number, std::int64_t now_ns) {
    const auto found = waiting_.find(number);
    if (found == waiting_.end()) return std::nullopt;
    std::vector<std::byte> answer;
    const Heard heard = hear(gate, found->second.connection, answer);
    if (heard == Heard::not_all) return std::nullopt;
    Connection connection = std::move(found->second.connection);
    waiting_.erase(found);
    if (heard == Heard::end) return std::nullopt;
    if (const Status right = gate.check(number, answer); !right.ok()) {
      connection.tell(gate.refusal(number, answer));
      say(LogLevel::warn, connection, right.error().message, now_ns);
      return std::nullopt;
    }
    return Passed{std::move(connection), number, std::move(answer)};
  }

  // To be called when those who have answered have been looked at.
  void expire(const Gate& gate, std::int64_t now_ns) {
    while (!waiting_.empty() && waiting_.begin()->second.deadline_ns <= now_ns) {
      waiting_.begin()->second.connection.tell(gate.refusal(waiting_.begin()->first, {}));
      say(LogLevel::info, waiting_.begin()->second.connection, "it said nothing of use in time",
          now_ns);
      waiting_.erase(waiting_.begin());
    }
  }
  std::int64_t next_deadline_ns() const {
    return waiting_.empty() ? no_deadline_ns : waiting_.begin()->second.deadline_ns;
  }
  // False if nobody waits.
  bool drop_oldest(std::int64_t now_ns) {
    if (waiting_.empty()) return false;
    say(LogLevel::warn, waiting_.begin()->second.connection,
        "it had not proved the secret when others needed its place", now_ns);
    waiting_.erase(waiting_.begin());
    return true;
  }
  std::vector<std::uint64_t> numbers() const {
    std::vector<std::uint64_t> out;
    for (const auto& [number, waiting] : waiting_) out.push_back(number);
    return out;
  }

 private:
  struct Waiting {
    Connection connection;
    std::int64_t deadline_ns;
  };

  static Heard hear(const Gate& gate, Connection& connection, std::vector<std::byte>& answer) {
    std::byte first{};
    const std::size_t least = gate.answer_bytes({});
    const Heard begun = least == 0 ? Heard::all : connection.peek(first);
    if (begun != Heard::all || least == 0) return begun;
    answer.resize(gate.answer_bytes(std::span(&first, 1)));
    return connection.hear(answer);
  }

  void say(LogLevel level, const Connection& connection, const std::string& why,
           std::int64_t now_ns) {
    if (level > log_level()) return;
    const std::string host = connection.host();
    std::uint64_t left_out = 0;
    if (!limit_.allows(host, now_ns, left_out)) return;
    log(level, "refused a connection from ", host, ": ", why,
        left_out > 0 ? str(" (and ", left_out, " more from there before)") : std::string());
  }

  std::uint64_t last_number_ = 0;
  std::map<std::uint64_t, Waiting> waiting_;  // the oldest first
  LogLimit limit_;
};

}  // namespace unisono::sys
